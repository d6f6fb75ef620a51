"""Find kernel functions in a module and read their attributes."""

from __future__ import annotations

from mlir import ir


def kernels(module: ir.Module) -> list[ir.Operation]:
    """The kernel functions of a module: those with `lamina.kind`."""
    return [op.operation for op in module.body.operations if "lamina.kind" in op.attributes]


def strings(attribute: ir.Attribute) -> list[str]:
    """An array of strings as Python strings."""
    return [ir.StringAttr(a).value for a in ir.ArrayAttr(attribute)]
