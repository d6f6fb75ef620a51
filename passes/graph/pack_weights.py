"""Pack the weights of linear layers ahead of time, in the order in which register tiles read them."""

from __future__ import annotations

from mlir import ir

from ...dialects.mlir_ops import build
from ..registry import register
from .dataflow import Dataflow, Node, functions, read_function

_SMALLEST = 4096  # elements of a weight; packing a smaller one inside its kernel costs next to nothing


@register
def pack_weights(module: ir.Module, columns: int = 16) -> None:
    """Turn products with constant weights into `packed_linear` on `pack`, which `split-init` then moves to `@init`.

    `columns` is the width of the target's register tile in f32 (16 on AVX2, 32 on AVX-512).

    Before:
    ```mlir
    %w = "lamina.weight"() {symbol = "w", shape = ["64", "64"], dtype = f32} : () -> tensor<64x64xf32>
    %y = "lamina.linear"(%x, %w) : (tensor<2x64xf32>, tensor<64x64xf32>) -> tensor<2x64xf32>
    ```
    After:
    ```mlir
    %w = "lamina.weight"() {symbol = "w", shape = ["64", "64"], dtype = f32} : () -> tensor<64x64xf32>
    %p = "lamina.pack"(%w) {columns = 16 : i64} : (tensor<64x64xf32>) -> tensor<4x64x16xf32>
    %y = "lamina.packed_linear"(%x, %p) {size = 64 : i64} : (tensor<2x64xf32>, tensor<4x64x16xf32>) -> tensor<2x64xf32>
    ```
    """
    main = functions(module).get("main")
    if main is None:
        return
    flow = read_function(main)
    early = flow.constant_nodes()
    packed: dict[tuple[ir.Value, int], ir.Value] = {}
    with module.context, ir.Location.unknown():
        for node in flow.nodes:
            if node.name in ("linear", "matmul") and flow.producer[node.operands[1]] in early:  # type: ignore[index]
                _rewrite(flow, node, columns, packed)


def _rewrite(flow: Dataflow, node: Node, columns: int, packed: dict[tuple[ir.Value, int], ir.Value]) -> None:
    """Replace one product, if its weight is a matrix of a float type that is worth packing."""
    number = node.operands[1]
    assert number is not None
    type, weight = flow.types[number], flow.values[number]
    count = type.numel
    if (
        type.rank != 2
        or type.dtype not in ("f32", "f64", "bf16", "f16")
        or not isinstance(count, int)
        or count < _SMALLEST
    ):
        return
    width = columns // 2 if type.dtype == "f64" else columns
    location, at = node.op.location, ir.InsertionPoint(node.op)
    key = (weight, width)
    if key not in packed:
        # beside the weight, so that it comes before all users of the weight
        first = ir.InsertionPoint.after(weight.owner)
        rows = (
            weight
            if node.name == "linear"
            else build("permute", [weight], {"dims": (1, 0)}, location, first).results[0]
        )
        packed[key] = build("pack", [rows], {"columns": width}, location, first).results[0]
    x = node.op.operands[0]
    bias = node.op.operands[2] if len(node.op.operands) > 2 else None
    size = type.shape[0] if node.name == "linear" else type.shape[1]
    made = build("packed_linear", [x, packed[key], bias], {"size": size}, location, at)
    node.op.results[0].replace_all_uses_with(made.results[0])
    node.op.erase()
