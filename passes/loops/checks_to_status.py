"""Run-time checks: from `cf.assert` to the status word of the kernel."""

from __future__ import annotations

from mlir import ir

from ...dialects.status import code_of
from ..find_ops import find_ops
from ..registry import register
from .kernel_functions import kernels
from .loops_builder import LoopsBuilder


@register
def checks_to_status(module: ir.Module) -> None:
    """Turn `cf.assert` in loops into a store to the kernel's status word.

    Before:
    ```mlir
    cf.assert %ok, "index out of range"
    ```
    After:
    ```mlir
    %bad = arith.xori %ok, %true : i1 ... memref.store %worst, %status[%c0] : memref<?xi32>
    ```
    """
    with module.context, ir.Location.unknown():
        for function in kernels(module):
            for op in find_ops(function, lambda op: op.name == "cf.assert"):
                _store_status(function, op)


def _store_status(function: ir.Operation, op: ir.Operation) -> None:
    arguments = function.regions[0].blocks[0].arguments
    status = next(a for a in reversed(list(arguments)) if isinstance(a.type, ir.MemRefType))
    b = LoopsBuilder(op.block, op.location)
    b.scopes[0].ip = ir.InsertionPoint(op)
    record_failure(
        b,
        status,
        op.operands[0],
        ir.StringAttr(op.attributes["msg"]).value,
        b.value("arith.constant", (), b.index, value=b.number(0, b.index)),
    )
    op.erase()


def record_failure(b: LoopsBuilder, status: ir.Value, ok: ir.Value, message: str, zero: ir.Value) -> None:
    """Emit `status[0] = max(status[0], ok ? 0 : code)`: no branch, so a loop around it still vectorises."""
    good = b.value("arith.constant", (), b.i32, value=b.number(0, b.i32))
    code = b.value("arith.constant", (), b.i32, value=b.number(code_of(message), b.i32))
    failed = b.select(ok, good, code)
    old = b.value("memref.load", (status, zero), b.i32)
    b.op("memref.store", (b.value("arith.maxsi", (old, failed), b.i32), status, zero))
