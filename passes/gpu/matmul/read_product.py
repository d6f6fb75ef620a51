"""Read the matrix product at the root of a kernel (`problem`), by the op that it is.

| op | batch | rows M | K | columns N |
|---|---|---|---|---|
| `matmul(a, b)` | leading dimensions; none if B is the same for all | rest of A's | A's last | B's last |
| `linear(x, w, bias)` | none | all of x's but the last | x's last | w's first |
| `packed_linear(x, packed, bias)` | none | the same | the same | `size` of the panels' columns, packed `[P, K, C]` |
| `conv(x, w, bias)` | images, and groups | output channels of a group | channels and kernel | output positions (`conv_product`) |
| `channels_last_conv(x, w, bias)` | none | images and output positions | kernel and channels | output channels |
| `depthwise_conv(x, w, bias)` | none | images and output positions | kernel | channels |

Others, most of them packed for the register tiles of a CPU, have no such form here: their kernels are compiled plain.
"""

from __future__ import annotations

from mlir import ir

from ....dialects.dtypes import FLOAT8
from ...loops.strided_view import Shapes, strided_view
from ...loops.tensor_graph import TensorGraph
from .conv_product import read_channels_last, read_conv
from .problem import Product, Side, graph_shapes


def read_product(graph: TensorGraph) -> Product:
    """The product of a kernel whose root is a matmul, a linear layer or a convolution; NotImplementedError for others."""
    (root,) = [op.operation for op in graph.block.operations if op.operation.name.startswith("lamina.")]
    shapes = graph_shapes(graph)
    match root.name.removeprefix("lamina."):
        case "conv":
            return read_conv(graph, root, shapes)
        case "channels_last_conv" | "depthwise_conv":
            return read_channels_last(graph, root, shapes)
        case "packed_linear" if len({*map(_dtype, (*root.operands[:2], root.results[0]))}) > 1:
            raise NotImplementedError("a product with a packed weight of another type on a GPU")
        case "matmul" | "linear" | "packed_linear":
            return _read_matmul(graph, root, shapes)
        case other:
            raise NotImplementedError(f"'{other}' as a matrix product of a GPU")


def _read_matmul(graph: TensorGraph, root: ir.Operation, shapes: Shapes) -> Product:
    packed = root.name == "lamina.packed_linear"
    linear = packed or root.name == "lamina.linear"
    a, b = root.operands[0], root.operands[1]
    a_shape, b_shape = graph.shape(a), graph.shape(b)
    a_view, b_view = strided_view(a, shapes), strided_view(b, shapes)
    lead = 0 if linear else len(a_shape) - 2
    if b_view is not None and all(s == 0 or n == 1 for n, s in zip(b_view.shape[:lead], b_view.strides)):
        lead = 0
    rank, types = len(b_shape), [_dtype(v) for v in (a, b)]
    if packed:
        b_rows, b_k, n = (0, 2), 1, ir.IntegerAttr(root.attributes["size"]).value
    else:
        b_row, b_k = (rank - 2, rank - 1) if linear else (rank - 1, rank - 2)
        b_rows, n = (b_row,), b_shape[b_row]
    product = Product(
        root=root,
        a=Side(a, _range(lead), _range(lead, len(a_shape) - 1), (len(a_shape) - 1,), a_view),
        b=Side(b, _range(lead), b_rows, (b_k,), b_view),
        bias=root.operands[2] if len(root.operands) > 2 else None,
        batch=a_shape[:lead],
        rows=a_shape[lead:-1],
        k=a_shape[-1],
        n=n,
        dtype="f32" if types[0] in FLOAT8 else types[0],
        result=(*a_shape[:-1], n),
        tf32="lamina.tf32" in graph.op.attributes,
        float8=(types[0], types[1]) if types[0] in FLOAT8 else None,
    )
    graph.declare(root.results[0], product.result)
    return product


def _dtype(value: ir.Value) -> str:
    return str(ir.RankedTensorType(value.type).element_type)


def _range(*bounds: int) -> tuple[int, ...]:
    return tuple(range(*bounds))
