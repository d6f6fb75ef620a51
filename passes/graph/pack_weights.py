"""Pack the weights of linear layers ahead of time, in the order in which register tiles read them."""

from __future__ import annotations

from mlir import ir

from ...dialects.dtypes import FLOAT8
from ..registry import register
from .dataflow import Dataflow, Node
from .packed_weights import PackedWeights, Step, replace, with_constant_weights

FEW_ROWS = 4  # as DOT_ROWS of passes/tiles/grouped_matmul.py
_SMALLEST = 4096  # elements of a weight; packing a smaller one inside its kernel costs next to nothing


@register
def pack_weights(module: ir.Module, columns: int = 16, i8_depth: int = 1, u8_depth: int = 1) -> None:
    """Turn products with constant weights into `packed_linear` on `pack`, which `split-init` then moves to `@init`.

    `columns` is the width of the target's register tile in f32 (16 on AVX2, 32 on AVX-512). A product in i32 of casts from
    8 bits, with a weight in i8, becomes one of what is cast; the depths are those that the target multiplies together.
    A weight of floats of 8 bits is packed in bf16, which holds them all and is widened in less time. The matrices of a
    `grouped_matmul` are packed one after the other.

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
    packed = PackedWeights(columns)
    depths = {"i8": i8_depth, "u8": u8_depth}
    with module.context, ir.Location.unknown():
        for flow, node in with_constant_weights(module, ("linear", "matmul", "grouped_matmul")):
            if node.name == "grouped_matmul":
                _rewrite_groups(flow, node, packed)
            else:
                _rewrite(flow, node, depths, packed)


def _rewrite(flow: Dataflow, node: Node, depths: dict[str, int], packed: PackedWeights) -> None:
    """Replace one product, if its weight is a matrix that is worth packing."""
    x, number = node.inputs[:2]
    turned, depth = node.name == "matmul", 1  # the weight is [K, N]
    if flow.types[number].dtype == "i32":
        narrow = _narrow_operands(flow, node)
        if narrow is None:
            return
        x, number, swapped = narrow
        turned, depth = turned != swapped, depths[flow.types[x].dtype]
    elif flow.types[number].dtype not in ("f32", "f64", "bf16", "f16", *FLOAT8):
        return
    type = flow.types[number]
    count = type.numel
    if type.rank != 2 or not isinstance(count, int) or count < _SMALLEST:
        return
    steps: list[Step] = [("permute", {"dims": (1, 0)})] if turned else []
    if type.dtype in FLOAT8:
        steps.append(("cast", {"dtype": "bf16"}))
    steps.append(("pack", {"columns": packed.width(type.dtype), "depth": depth}))
    panels = packed.pack(node, flow.values[number], steps)
    bias = node.op.operands[2] if len(node.op.operands) > 2 else None
    size = type.shape[1] if turned else type.shape[0]
    replace(node, "packed_linear", [flow.values[x], panels, bias], {"size": size, "depth": depth})


def _rewrite_groups(flow: Dataflow, node: Node, packed: PackedWeights) -> None:
    """Replace a product in groups of rows, if its matrices consist of whole panels."""
    type = flow.types[node.inputs[1]]
    width = packed.width(type.dtype)
    groups, k, n = type.shape
    if not (isinstance(groups, int) and isinstance(k, int) and isinstance(n, int)):
        return
    if n % width or groups * k * n < _SMALLEST or _few_read_in_place(flow, node, groups):
        return
    steps: list[Step] = [
        ("permute", {"dims": (0, 2, 1)}),
        ("reshape", {"shape": (groups * n, k)}),
        ("pack", {"columns": width}),
        ("reshape", {"shape": (groups, n // width, k, width)}),
    ]
    panels = packed.pack(node, flow.values[node.inputs[1]], steps)
    replace(node, "packed_grouped_matmul", [node.op.operands[0], panels, node.op.operands[2]], {})


def _few_read_in_place(flow: Dataflow, node: Node, groups: int) -> bool:
    """True for so few rows a group that matrices which lie turned are read along K, in less time than in panels."""
    rows, made = flow.types[node.inputs[0]].shape[0], flow.producer[node.inputs[1]]
    turned = made is not None and made.name == "permute" and made.attributes["dims"] == (0, 2, 1)
    return turned and isinstance(rows, int) and rows <= FEW_ROWS * groups


def _narrow_operands(flow: Dataflow, node: Node) -> tuple[int, int, bool] | None:
    """What the operands of a product in i32 are casts of, if that is i8 or u8 times i8; True if the weight lies turned."""
    x, w = flow.producer[node.inputs[0]], node.inputs[1]
    if len(node.inputs) > 2 or x is None or x.name != "cast":
        return None
    turned, made = False, flow.producer[w]
    while made is not None and made.name in ("cast", "permute") and flow.types[w].dtype in ("i32", "i8"):
        if made.name == "permute" and made.attributes["dims"] == (1, 0):
            turned = not turned
        elif made.name == "permute" or flow.types[w].dtype == "i8":
            break  # a cast to i8 changes values
        w = made.inputs[0]
        made = flow.producer[w]
    known = flow.types[x.inputs[0]].dtype in ("i8", "u8") and flow.types[w].dtype == "i8"
    return (x.inputs[0], w, turned) if known else None
