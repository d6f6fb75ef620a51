"""Find the ops of a module or function that a pass is about, before it changes any."""

from __future__ import annotations

from collections.abc import Callable

from mlir import ir


def find_ops(root: ir.Operation, suits: Callable[[ir.Operation], bool]) -> list[ir.Operation]:
    """The ops in `root` that suit, those inside of others first."""
    found: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if suits(op.operation):
            found.append(op.operation)
        return ir.WalkResult.ADVANCE

    root.walk(visit)
    return found
