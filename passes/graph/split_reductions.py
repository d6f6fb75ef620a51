"""Reduce a whole tensor in two steps, so that all threads take part.

A reduction to one element is one work item of its kernel, and a kernel's work items are what threads share. The pieces
do not depend on the number of threads, so neither does the sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlir import ir

from ...dialects import dims
from ...dialects.dims import Dim
from ...dialects.dtypes import is_float
from ...dialects.mlir_ops import build
from ...dialects.mlir_types import type_of
from ..registry import register
from .dataflow import Node, functions, read_function

SMALLEST = 1 << 16  # elements that take one thread longer (some 4 us) than a second kernel and a second thread cost
PIECES = (64, 32, 16, 8)  # of a tensor without suitable dims: enough for the threads of a large machine
SHORTEST = 128  # elements of a piece: shorter ones cost more to add up again than they save
SPLIT = ("sum", "mean", "amax", "amin")


@register
def split_reductions(module: ir.Module) -> None:
    """Replace a sum, mean, maximum or minimum of all elements of a large tensor by one of rows, and one of its results.

    Before:
    ```mlir
    func.func @main(%x: tensor<512x256xf32>) -> tensor<f32> {
      %y = "lamina.amax"(%x) {dims = array<i64: 0, 1>, keepdim = false} : (tensor<512x256xf32>) -> tensor<f32>
      return %y : tensor<f32> }
    ```
    After:
    ```mlir
    func.func @main(%x: tensor<512x256xf32>) -> tensor<f32> {
      %0 = "lamina.amax"(%x) {dims = array<i64: 1>, keepdim = false} : (tensor<512x256xf32>) -> tensor<512xf32>
      %1 = "lamina.amax"(%0) {dims = array<i64: 0>, keepdim = false} : (tensor<512xf32>) -> tensor<f32>
      return %1 : tensor<f32> }
    ```
    """
    for function in functions(module).values():
        flow = read_function(function)
        with module.context, ir.Location.unknown():
            for node in flow.nodes:
                if node.name in SPLIT:
                    _split(node)


def _split(node: Node) -> None:
    op, a = node.op, node.attributes
    x, result = op.operands[0], type_of(op.results[0])
    shape = type_of(x).shape
    total = dims.product(shape)
    if len(a["dims"]) != len(shape) or not isinstance(total, int) or total < SMALLEST:
        return
    rows = _rows(shape, total)
    if rows is None:
        return

    def emit(name: str, operand: ir.Value, **attributes: Any) -> ir.Value:
        return build(name, (operand,), attributes, op.location, ir.InsertionPoint(op)).results[0]

    half = is_float(result.dtype) and result.dtype not in ("f32", "f64")  # rounded once, at the end
    first: dict[str, Any] = {"keepdim": False}
    second = dict(first)
    if node.name == "sum":
        first["dtype"], second["dtype"] = "f32" if half else result.dtype, result.dtype
    if node.name == "mean" and half:
        x = emit("cast", x, dtype="f32")
    kept, shape = rows
    y = emit("reshape", x, shape=shape) if shape != type_of(x).shape else x
    y = emit(node.name, y, dims=tuple(range(kept, len(shape))), **first)
    y = emit(node.name, y, dims=tuple(range(kept)), **second)
    if node.name == "mean" and half:
        y = emit("cast", y, dtype=result.dtype)
    if result.shape:
        y = emit("reshape", y, shape=result.shape)
    op.results[0].replace_all_uses_with(y)
    op.erase()


def _rows(shape: Sequence[Dim], total: int) -> tuple[int, tuple[Dim, ...]] | None:
    """How many leading dims tell the pieces apart, and the shape in which they do; None if there is no good one."""
    count: Dim = 1
    for kept, size in enumerate(shape[:-1], 1):
        count = count * size
        if isinstance(count, int) and count >= PIECES[-1]:
            if total // count >= SHORTEST:
                return kept, tuple(shape)
            break
    pieces = next((p for p in PIECES if total % p == 0), None)
    return None if pieces is None else (1, (pieces, total // pieces))
