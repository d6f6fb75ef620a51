"""Pack the weights of convolutions ahead of time, where a product by output channels is better than one by positions."""

from __future__ import annotations

from math import prod

from mlir import ir

from ...dialects.dims import product
from ..registry import register
from .dataflow import Dataflow, Node
from .packed_weights import PackedWeights, Step, replace, with_constant_weights

SMALL_IMAGE = 48 * 1024  # elements: read one by one from L2, in place; larger ones are better packed
COPIES = 4  # a copy of one element for each kernel position costs as much as so many multiply-adds


@register
def pack_convolutions(module: ir.Module, columns: int = 16) -> None:
    """Turn convolutions with constant weights into `packed_conv` on `pack`, which `split-init` then moves to `@init`.

    `columns` is the width of the target's register tile in f32. Positions as columns need a copy of the image for each
    kernel position, and waste lanes where they are few; output channels as columns must be turned when they are stored.

    Before:
    ```mlir
    func.func @main(%x: tensor<2x8x100xf32>) -> tensor<2x16x100xf32> {
      %w = "lamina.weight"() {symbol = "w", shape = ["16", "8", "9"], dtype = f32} : () -> tensor<16x8x9xf32>
      %y = "lamina.conv"(%x, %w) {stride = array<i64: 1>, padding = array<i64: 4>, dilation = array<i64: 1>, groups = 1 : i64,
          transposed = false, output_padding = array<i64>} : (tensor<2x8x100xf32>, tensor<16x8x9xf32>) -> tensor<2x16x100xf32>
      return %y : tensor<2x16x100xf32> }
    ```
    After:
    ```mlir
    func.func @main(%x: tensor<2x8x100xf32>) -> tensor<2x16x100xf32> {
      %w = "lamina.weight"() {symbol = "w", shape = ["16", "8", "9"], dtype = f32} : () -> tensor<16x8x9xf32>
      %m = "lamina.reshape"(%w) {shape = ["16", "72"]} : (tensor<16x8x9xf32>) -> tensor<16x72xf32>
      %p = "lamina.pack"(%m) {columns = 16 : i64, depth = 1 : i64} : (tensor<16x72xf32>) -> tensor<1x72x16xf32>
      %y = "lamina.packed_conv"(%x, %p) {size = 16 : i64, kernel = array<i64: 9>, stride = array<i64: 1>, padding = array<i64: 4>,
          dilation = array<i64: 1>} : (tensor<2x8x100xf32>, tensor<1x72x16xf32>) -> tensor<2x16x100xf32>
      return %y : tensor<2x16x100xf32> }
    ```
    """
    packed = PackedWeights(columns)
    with module.context, ir.Location.unknown():
        for flow, node in with_constant_weights(module, ("conv",)):
            if _suits(flow, node, columns):
                _rewrite(flow, node, packed)


def _suits(flow: Dataflow, node: Node, columns: int) -> bool:
    """True if the convolution is a better product by output channels."""
    image, weight, result = (flow.types[v] for v in (*node.inputs[:2], node.results[0]))
    sizes = [n for n in weight.shape if isinstance(n, int)]
    if node.attributes["groups"] != 1 or node.attributes["transposed"] or len(sizes) < weight.rank:
        return False
    if weight.dtype not in ("f32", "f64", "bf16", "f16") or 2 * sizes[0] < columns:
        return False
    positions = product(result.shape[2:])
    elements = product(image.shape[1:])
    ragged = isinstance(positions, int) and positions % columns != 0
    if ragged and isinstance(elements, int) and elements < SMALL_IMAGE:
        return True
    outputs, channels, *kernel = sizes
    padded = any(node.attributes["padding"])
    return prod(kernel) > 1 and (not padded or channels * prod(kernel) >= COPIES * outputs)


def _rewrite(flow: Dataflow, node: Node, packed: PackedWeights) -> None:
    type = flow.types[node.inputs[1]]
    size, channels, *kernel = (n for n in type.shape if isinstance(n, int))
    matrix = {"shape": (size, channels * prod(kernel))}
    steps: list[Step] = [("reshape", matrix), ("pack", {"columns": packed.fitting(size, type.dtype)})]
    x, weight = node.op.operands[0], node.op.operands[1]
    panels = packed.pack(node, weight, steps)
    bias = node.op.operands[2] if len(node.op.operands) > 2 else None
    kept = {name: node.attributes[name] for name in ("stride", "padding", "dilation")}
    replace(node, "packed_conv", [x, panels, bias], {"size": size, "kernel": tuple(kernel), **kept})
