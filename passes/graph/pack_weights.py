"""Pack the weights of linear layers ahead of time, in the order in which register tiles read them."""

from __future__ import annotations

from mlir import ir

from ...dialects.dtypes import FLOAT8
from ...dialects.mlir_ops import build
from ..registry import register
from .dataflow import Dataflow, Node, functions, read_function

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
    main = functions(module).get("main")
    if main is None:
        return
    flow = read_function(main)
    early = flow.constant_nodes()
    packed: dict[tuple, ir.Value] = {}
    depths = {"i8": i8_depth, "u8": u8_depth}
    with module.context, ir.Location.unknown():
        for node in flow.nodes:
            if node.name not in ("linear", "matmul", "grouped_matmul") or flow.producer[node.inputs[1]] not in early:
                continue
            if node.name == "grouped_matmul":
                _rewrite_groups(flow, node, columns, packed)
            else:
                _rewrite(flow, node, columns, depths, packed)


def _rewrite(flow: Dataflow, node: Node, columns: int, depths: dict[str, int], packed: dict[tuple, ir.Value]) -> None:
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
    type, weight = flow.types[number], flow.values[number]
    count = type.numel
    if type.rank != 2 or not isinstance(count, int) or count < _SMALLEST:
        return
    width = columns // 2 if type.dtype == "f64" else columns
    location, at = node.op.location, ir.InsertionPoint(node.op)
    key = (weight, width, turned, depth)
    if key not in packed:
        # beside the weight, so that it comes before all users of the weight
        first = ir.InsertionPoint.after(weight.owner)
        rows = build("permute", [weight], {"dims": (1, 0)}, location, first).results[0] if turned else weight
        if type.dtype in FLOAT8:
            rows = build("cast", [rows], {"dtype": "bf16"}, location, first).results[0]
        packed[key] = build("pack", [rows], {"columns": width, "depth": depth}, location, first).results[0]
    bias = node.op.operands[2] if len(node.op.operands) > 2 else None
    size = type.shape[1] if turned else type.shape[0]
    made = build("packed_linear", [flow.values[x], packed[key], bias], {"size": size, "depth": depth}, location, at)
    node.op.results[0].replace_all_uses_with(made.results[0])
    node.op.erase()


def _rewrite_groups(flow: Dataflow, node: Node, columns: int, packed: dict[tuple, ir.Value]) -> None:
    """Replace a product in groups of rows, if its matrices consist of whole panels."""
    type, weight = flow.types[node.inputs[1]], flow.values[node.inputs[1]]
    width = columns // 2 if type.dtype == "f64" else columns
    groups, k, n = type.shape
    if not (isinstance(groups, int) and isinstance(k, int) and isinstance(n, int)):
        return
    if n % width or groups * k * n < _SMALLEST or _few_read_in_place(flow, node, groups):
        return
    location, at = node.op.location, ir.InsertionPoint(node.op)
    key = (weight, width, "groups")
    if key not in packed:
        first = ir.InsertionPoint.after(weight.owner)
        rows = build("permute", [weight], {"dims": (0, 2, 1)}, location, first).results[0]
        rows = build("reshape", [rows], {"shape": (groups * n, k)}, location, first).results[0]
        panels = build("pack", [rows], {"columns": width}, location, first).results[0]
        shape = {"shape": (groups, n // width, k, width)}
        packed[key] = build("reshape", [panels], shape, location, first).results[0]
    x, ends = node.op.operands[0], node.op.operands[2]
    made = build("packed_grouped_matmul", [x, packed[key], ends], {}, location, at)
    node.op.results[0].replace_all_uses_with(made.results[0])
    node.op.erase()


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
