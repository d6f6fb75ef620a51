"""The `lamina` dialect in MLIR: IRDL text made from the op registry, loaded into a fresh Context.

IRDL checks counts of operands and results, that they are tensors, and the kind of every attribute; everything else
(shapes, element types) is checked by `passes/verify_lamina.py` through the ops' own `infer`. Facts that shape the text:

* every operand has its own constraint variable, because sharing one would force equal types;
* an `irdl.base` inside `irdl.any_of` aborts the process, so an attribute of several kinds is `irdl.any`;
* IRDL attributes are all required: absent optional values are stored as `unit`;
* ops with several optional or variadic operands need the attribute `operandSegmentSizes`.

This module imports MLIR, so the user's process must not import it.
"""

from __future__ import annotations

import typing

from mlir import ir
from mlir.dialects import irdl
from mlir.dialects._ods_common import _cext

from .op import Attr, Dims, DTypeAttr, Field, Ints, Literal, Op, OptionalOperand, Variadic, all_ops

_cext.globals.append_dialect_search_prefix(__package__)  # see lamina.py beside this file

_ATTRIBUTE_BASES = {
    int: '"#builtin.integer"',
    float: '"#builtin.float"',
    str: '"#builtin.string"',
    Ints: '"#builtin.dense_array"',
    Dims: '"#builtin.array"',
    DTypeAttr: '"#builtin.type"',
    Literal: '"#builtin.string"',
}

# Ops of the dialect that are no tensor functions: what a kernel call looks like in `@main` (docs/contracts.md §4).
_LAUNCH = """
  irdl.operation @launch {
    %a = irdl.any
    %r = irdl.any
    %k = irdl.base "#builtin.symbol_ref"
    %d = irdl.base "#builtin.array"
    irdl.operands(args: variadic %a)
    irdl.results(results: variadic %r)
    irdl.attributes {"kernel" = %k, "dims" = %d}
  }"""


def dialect_text() -> str:
    """Return the whole dialect as textual IRDL."""
    return "\n".join(["irdl.dialect @lamina {", *map(_operation, all_ops().values()), _LAUNCH, "}"])


def context() -> ir.Context:
    """Return a new single-threaded Context with the dialect loaded.

    Multithreading is off because workers fork and because Python passes hold the GIL anyway.
    """
    ctx = ir.Context()
    ctx.enable_multithreading(False)
    with ctx, ir.Location.unknown():
        module = ir.Module.parse(dialect_text())
        irdl.load_dialects(module)
    for name in ("func", "arith", "math", "linalg", "tensor", "memref", "scf", "vector", "cf", "affine", "llvm"):
        ctx.dialects[name]  # an op of a dialect that is not loaded yet aborts `Operation.create`
    return ctx


def needs_segments(cls: type[Op]) -> bool:
    """True if the op's operands are ambiguous without `operandSegmentSizes`."""
    return sum(f.kind in (OptionalOperand, Variadic) for f in cls.operands) > 1


def _operation(cls: type[Op]) -> str:
    lines = [f"  irdl.operation @{cls.name} {{"]
    operands = []
    for i, f in enumerate(cls.operands):
        lines.append(f'    %o{i} = irdl.base "!builtin.tensor"')
        prefix = {OptionalOperand: "optional ", Variadic: "variadic "}.get(f.kind, "")
        operands.append(f"{f.name}: {prefix}%o{i}")
    for i in range(len(cls.results)):
        lines.append(f'    %r{i} = irdl.base "!builtin.tensor"')
    attributes = []
    for i, f in enumerate(cls.attributes):
        lines += _attribute(f, f"%a{i}")
        attributes.append(f'"{f.name}" = %a{i}')
    if operands:
        lines.append(f"    irdl.operands({', '.join(operands)})")
    lines.append(f"    irdl.results({', '.join(f'{f.name}: %r{i}' for i, f in enumerate(cls.results))})")
    if attributes:
        lines.append(f"    irdl.attributes {{{', '.join(attributes)}}}")
    return "\n".join([*lines, "  }"])


def _attribute(field: Field, name: str) -> list[str]:
    assert field.kind is Attr
    if field.type is bool:
        return [f"    {name}t = irdl.is true", f"    {name}f = irdl.is false", f"    {name} = irdl.any_of({name}t, {name}f)"]
    if typing.get_args(field.type) or field.type not in _ATTRIBUTE_BASES:
        return [f"    {name} = irdl.any"]  # `int | None`, Scalar
    return [f"    {name} = irdl.base {_ATTRIBUTE_BASES[field.type]}"]
