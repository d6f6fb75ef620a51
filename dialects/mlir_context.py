"""A Context that knows the `lamina` dialect.

`lamina` ops live in MLIR as ops of an unregistered dialect, and `passes/graph/verify_lamina.py` is their verifier: it knows
the registry, so it checks counts, attributes, shapes and element types with messages that name the field and the line.
IRDL was tried first and cannot say what the dialect needs: all operands of a variadic group must have equal types
(a constraint variable binds once), so neither `concat` nor `launch` verifies; it has no optional attributes either.

This module imports MLIR, so the user's process must not import it.
"""

from __future__ import annotations

from mlir import ir
from mlir.dialects._ods_common import _cext

_DIALECTS = "func arith math linalg tensor memref bufferization scf vector cf affine llvm".split()

_cext.globals.append_dialect_search_prefix(__package__)  # finds lamina.py beside this file, which says why


def context() -> ir.Context:
    """Return a new single-threaded Context in which `lamina` ops can be parsed and built.

    Multithreading is off because workers fork, and because Python passes hold the GIL anyway.
    """
    ctx = ir.Context()
    ctx.enable_multithreading(False)
    ctx.allow_unregistered_dialects = True
    for name in _DIALECTS:
        ctx.dialects[name]  # building an op of a dialect that is not loaded aborts the process
    return ctx
