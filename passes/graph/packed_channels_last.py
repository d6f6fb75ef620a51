"""Channels last for a CPU's register tiles: convolutions with constant weights, and what lies between them."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from mlir import ir

from ...dialects.dims import evaluate, product, symbols
from ...dialects.mlir_types import type_of
from ..registry import register
from .channels_last import Walk, drop_copies, to_last
from .dataflow import Dataflow, Node, functions, read_function
from .packed_weights import PackedWeights, Step

FEW_CHANNELS = 8  # an image of fewer is read as it lies: its patches are copied element by element either way
TURNED = (
    1 / 8
)  # elements that are turned, at most, for each that a convolution makes: a kernel of one element costs as much
USUAL_SIZE = 32  # what a symbolic size counts


@register
def packed_channels_last(module: ir.Module, columns: int = 16) -> None:
    """Compute convolutions with constant weights, and ops between them, with channels last, where little is turned for it.

    `columns` is the width of the target's register tile in f32. Rows of channels are what a product reads and writes in place: a
    kernel of one element packs no image, and no sums are turned. The graph is walked on a clone as for a GPU (`channels_last`),
    and the clone stays if few elements have to be turned for what has no form with channels last: groups, norms of planes.

    Before:
    ```mlir
    func.func @main(%x: tensor<1x4x9x9xf32>) -> tensor<1x32xf32> {
      %v = "lamina.weight"() {dtype = f32, shape = ["64", "4", "3", "3"], symbol = "v"} : () -> tensor<64x4x3x3xf32>
      %w = "lamina.weight"() {dtype = f32, shape = ["32", "64", "1", "1"], symbol = "w"} : () -> tensor<32x64x1x1xf32>
      %0 = "lamina.conv"(%x, %v) {dilation = array<i64: 1, 1>, groups = 1 : i64, output_padding = array<i64>, padding = array<i64: 1, 1>, stride = array<i64: 1, 1>, transposed = false} : (tensor<1x4x9x9xf32>, tensor<64x4x3x3xf32>) -> tensor<1x64x9x9xf32>
      %1 = "lamina.relu"(%0) : (tensor<1x64x9x9xf32>) -> tensor<1x64x9x9xf32>
      %2 = "lamina.conv"(%1, %w) {dilation = array<i64: 1, 1>, groups = 1 : i64, output_padding = array<i64>, padding = array<i64: 0, 0>, stride = array<i64: 2, 2>, transposed = false} : (tensor<1x64x9x9xf32>, tensor<32x64x1x1xf32>) -> tensor<1x32x5x5xf32>
      %3 = "lamina.mean"(%2) {dims = array<i64: 2, 3>, keepdim = false} : (tensor<1x32x5x5xf32>) -> tensor<1x32xf32>
      return %3 : tensor<1x32xf32>
    }
    ```
    After:
    ```mlir
    func.func @main(%arg0: tensor<1x4x9x9xf32>) -> tensor<1x32xf32> {
      %0 = "lamina.weight"() {dtype = f32, shape = ["64", "4", "3", "3"], symbol = "v"} : () -> tensor<64x4x3x3xf32>
      %1 = "lamina.permute"(%0) {dims = array<i64: 0, 2, 3, 1>} : (tensor<64x4x3x3xf32>) -> tensor<64x3x3x4xf32>
      %2 = "lamina.reshape"(%1) {shape = ["64", "36"]} : (tensor<64x3x3x4xf32>) -> tensor<64x36xf32>
      %3 = "lamina.pack"(%2) {columns = 16 : i64, depth = 1 : i64} : (tensor<64x36xf32>) -> tensor<4x36x16xf32>
      %4 = "lamina.weight"() {dtype = f32, shape = ["32", "64", "1", "1"], symbol = "w"} : () -> tensor<32x64x1x1xf32>
      %5 = "lamina.permute"(%arg0) {dims = array<i64: 0, 2, 3, 1>} : (tensor<1x4x9x9xf32>) -> tensor<1x9x9x4xf32>
      %6 = "lamina.packed_last_conv"(%5, %3) {dilation = array<i64: 1, 1>, kernel = array<i64: 3, 3>, padding = array<i64: 1, 1>, size = 64 : i64, stride = array<i64: 1, 1>} : (tensor<1x9x9x4xf32>, tensor<4x36x16xf32>) -> tensor<1x9x9x64xf32>
      %7 = "lamina.relu"(%6) : (tensor<1x9x9x64xf32>) -> tensor<1x9x9x64xf32>
      %8 = "lamina.slice"(%7) {sizes = ["1", "5", "5", "64"], starts = ["0", "0", "0", "0"], steps = array<i64: 1, 2, 2, 1>} : (tensor<1x9x9x64xf32>) -> tensor<1x5x5x64xf32>
      %9 = "lamina.reshape"(%4) {shape = ["32", "64"]} : (tensor<32x64x1x1xf32>) -> tensor<32x64xf32>
      %10 = "lamina.linear"(%8, %9) : (tensor<1x5x5x64xf32>, tensor<32x64xf32>) -> tensor<1x5x5x32xf32>
      %11 = "lamina.mean"(%10) {dims = array<i64: 1, 2>, keepdim = false} : (tensor<1x5x5x32xf32>) -> tensor<1x32xf32>
      return %11 : tensor<1x32xf32>
    }
    ```
    """
    main = functions(module).get("main")
    if main is None:
        return
    with module.context, ir.Location.unknown():
        flow = read_function(main)
        if not any(n.name == "conv" for n in flow.nodes):
            return
        kept, walk = main.clone(ir.InsertionPoint(main)), _Walk(flow, columns)
        walk.run()
        if not walk.pays():
            main.erase()
            return
        kept.erase()
    drop_copies(module)


class _Walk(Walk):
    """`made` are the values that convolutions with channels last make."""

    def __init__(self, flow: Dataflow, columns: int):
        super().__init__(flow)
        self.columns, self.packed = columns, PackedWeights(columns)
        self.early = flow.constant_nodes()
        self.made: list[int] = []

    def pays(self) -> bool:
        """True if few elements are turned, beside those that convolutions make."""
        return bool(self.made) and self._elements(self.turned) <= TURNED * self._elements(self.made)

    def _elements(self, values: Sequence[int]) -> int:
        sizes = [product(self.flow.types[v].shape) for v in values]
        return sum(evaluate(size, dict.fromkeys(symbols(size), USUAL_SIZE)) for size in sizes)

    def suits(self, node: Node) -> bool:
        a, w = node.attributes, self.flow.types[node.inputs[1]]
        known = all(isinstance(n, int) for n in w.shape) and self.flow.producer[node.inputs[1]] in self.early
        return w.dtype == "f32" and known and a["groups"] == 1 and not a["transposed"]

    def conv(self, node: Node) -> ir.Value:
        x, w = node.inputs[:2]
        types, a = self.flow.types, node.attributes
        size, channels, *kernel = (n for n in types[w].shape if isinstance(n, int))
        weights, bias = self.flow.values[w], self.flow.values[node.inputs[2]] if len(node.inputs) > 2 else None
        self.made.append(node.results[0])
        as_it_lies = channels < FEW_CHANNELS and x not in self.last
        image = self.permute(self.flow.values[x], to_last(types[x].rank)) if as_it_lies else self.stored_last(x)
        if prod(kernel) == 1 and not any(a["padding"]):
            met = self._every(image, a["stride"], types[node.results[0]].shape[2:])
            return self.build("linear", met, self.reshape(weights, (size, channels)), bias)
        steps: list[Step] = [
            ("permute", {"dims": to_last(len(kernel) + 2)}),
            ("reshape", {"shape": (size, channels * prod(kernel))}),
            ("pack", {"columns": self.packed.fitting(size, "f32")}),
        ]
        windows: dict[str, Any] = {k: a[k] for k in ("stride", "padding", "dilation")}
        panels = self.packed.pack(node, weights, steps)
        return self.build("packed_last_conv", image, panels, bias, size=size, kernel=tuple(kernel), **windows)

    def _every(self, image: ir.Value, stride: Sequence[int], positions: Sequence[Any]) -> ir.Value:
        """The positions of `image` that a kernel of one element meets."""
        first, *_, channels = type_of(image).shape
        sizes = (first, *positions, channels)
        if set(stride) == {1}:
            return image
        return self.build("slice", image, starts=(0,) * len(sizes), sizes=sizes, steps=(1, *stride, 1))
