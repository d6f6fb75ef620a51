"""Copies for results that no buffer can hold as they are."""

from __future__ import annotations

from mlir import ir

from ...dialects.mlir_ops import attributes_of, build, op_class
from ...dialects.mlir_types import type_of
from ...dialects.strides import View, ViewError
from ..registry import register
from .dataflow import entry_functions


@register
def materialize_results(module: ir.Module) -> None:
    """Copy what is returned through views that have no strides, or to an input that is replaced.

    A result may be a strided view of a buffer. A reshape of a transposed tensor is none, and the new value of an input
    must be contiguous; a `lamina.materialize` gives both a buffer of their own.

    Before:
    ```mlir
    func.func @main(%x: tensor<2x3xf32>) -> tensor<6xf32> {
      %0 = "lamina.permute"(%x) {dims = array<i64: 1, 0>} : (tensor<2x3xf32>) -> tensor<3x2xf32>
      %1 = "lamina.reshape"(%0) {shape = ["6"]} : (tensor<3x2xf32>) -> tensor<6xf32>
      return %1 : tensor<6xf32>
    }
    ```
    After:
    ```mlir
    func.func @main(%x: tensor<2x3xf32>) -> tensor<6xf32> {
      %0 = "lamina.permute"(%x) {dims = array<i64: 1, 0>} : (tensor<2x3xf32>) -> tensor<3x2xf32>
      %1 = "lamina.reshape"(%0) {shape = ["6"]} : (tensor<3x2xf32>) -> tensor<6xf32>
      %2 = "lamina.materialize"(%1) : (tensor<6xf32>) -> tensor<6xf32>
      return %2 : tensor<6xf32>
    }
    ```
    """
    with module.context:
        for function in entry_functions(module):
            block = function.regions[0].blocks[0]
            terminator = block.operations[len(block.operations) - 1].operation
            replaced = _replaced(function, len(terminator.operands))
            for number, value in enumerate(list(terminator.operands)):
                if not _fits(value, replaced[number]):
                    copy = build(
                        "materialize", [value], location=value.owner.location, ip=ir.InsertionPoint(terminator)
                    )
                    terminator.operands[number] = copy.result


def _replaced(function: ir.Operation, count: int) -> list[bool]:
    """For each result, whether it takes the place of an input's content."""
    if "lamina.mutates" not in function.attributes:
        return [False] * count
    return [bool(ir.StringAttr(name).value) for name in ir.ArrayAttr(function.attributes["lamina.mutates"])]


def _fits(value: ir.Value, contiguous: bool) -> bool:
    """True if the views that lead to `value` have strides (those of a contiguous tensor, where asked)."""
    chain: list[ir.Operation] = []
    base = value
    while isinstance(base.owner, ir.Operation | ir.OpView):
        cls = op_class(base.owner)
        if cls is None or cls.category != "view":
            break
        chain.append(base.owner.operation)
        base = base.owner.operands[0]
    view = View.whole(type_of(base).shape)
    try:
        for op in reversed(chain):
            view = view.apply(op_class(op).name, attributes_of(op))  # type: ignore[union-attr]
    except ViewError:
        return False
    return view.contiguous or not contiguous
