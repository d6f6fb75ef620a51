"""The matrix product at the root of a GPU kernel, whatever op it is.

    y[batch, m, n] = sum_k a[batch, m, k] * b[batch, n, k] (+ bias[n], or bias[m])

| op | batch | rows M | K | columns N |
|---|---|---|---|---|
| `matmul(a, b)` | leading dimensions; none if B is the same for all | rest of A's | A's last | B's last |
| `linear(x, w, bias)` | none | all of x's but the last | x's last | w's first |
| `packed_linear(x, packed, bias)` | none | the same | the same | `size` of the panels' columns, packed `[P, K, C]` |
| `conv(x, w, bias)` | images, and groups | output channels of a group | channels and kernel | output positions (`conv_product`) |
| `channels_last_conv(x, w, bias)` | none | images and output positions | kernel and channels | output channels |
| `depthwise_conv(x, w, bias)` | none | images and output positions | kernel | channels |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from mlir import ir

from ....dialects import dims
from ....dialects.dims import Dim
from ....dialects.dtypes import FLOAT8
from ...loops.evaluate_walk import Walk
from ...loops.strided_view import Shapes, View, merge, strided_view
from ...loops.tensor_graph import TensorGraph

_FACTORS = {"f32": "tf32", "f8E4M3FN": "e4m3", "f8E5M2": "e5m2"}


@dataclass(frozen=True)
class Strides:
    """Where the elements of an operand lie in an input's buffer."""

    base: ir.Value
    offset: Dim
    batch: tuple[Dim, ...]  # sizes
    batch_strides: tuple[Dim, ...]
    row: Dim
    k: Dim


@dataclass(frozen=True)
class Side:
    """A or B: the tensor, and which of its dimensions are batch, rows (M or N) and K."""

    value: ir.Value
    batch: tuple[int, ...]
    rows: tuple[int, ...]
    k: tuple[int, ...]
    view: View | None  # of an input, if it is one

    vectors: ClassVar[bool] = True  # several elements may be asked for at once

    def strides(self) -> Strides | None:
        """None for what the kernel computes, and where rows or K have no one stride."""
        if self.view is None:
            return None
        shape, strides = self.view.shape, self.view.strides
        rows = merge([shape[d] for d in self.rows], [strides[d] for d in self.rows])
        k = merge([shape[d] for d in self.k], [strides[d] for d in self.k])
        if rows is None or k is None:
            return None
        batch = [(shape[d], strides[d]) for d in self.batch]
        sizes, batch_strides = tuple(n for n, _ in batch), tuple(s for _, s in batch)
        return Strides(self.view.base, self.view.offset, sizes, batch_strides, rows[1], k[1])

    def at(self, ev: Walk, batch: Dim, row: Dim, k: Dim) -> Any:
        """The element in row `row` (of M or N) at place `k` of batch number `batch`."""
        shape = ev.graph.shape(self.value)
        places = [
            ev.ranges.delinearize(place, [shape[d] for d in dimensions])
            for place, dimensions in ((batch, self.batch), (row, self.rows), (k, self.k))
        ]
        return ev.at(self.value, operand_index(self, places[0], places[1], places[2], len(shape)))


@dataclass(frozen=True)
class Product:
    """One product; `dtype` is that of the operands (but for `float8`) and of the root's result, of shape `result`."""

    root: ir.Operation
    a: Side
    b: Side
    bias: ir.Value | None  # one element a column
    batch: tuple[Dim, ...]
    rows: tuple[Dim, ...]
    k: Dim
    n: Dim
    dtype: str
    result: tuple[Dim, ...]
    bias_by_rows: bool = False  # or one a row of all batches' last dimension
    tf32: bool = False  # f32 may be rounded to TF32 before it is multiplied
    float8: tuple[str, str] | None = None  # the types of operands of 8 bits; the root's result is of f32

    @property
    def m(self) -> Dim:
        """Rows of one batch."""
        return dims.product(self.rows)

    @property
    def batches(self) -> Dim:
        """How many products there are."""
        return dims.product(self.batch)

    @property
    def shape(self) -> tuple[Dim, ...]:
        """Batch, rows and columns: the root's elements in the same order."""
        return (*self.batch, *self.rows, self.n)

    @property
    def factors(self) -> tuple[str, str]:
        """What tensor cores multiply, as PTX names it: TF32 where the operands are f32."""
        first, second = (_FACTORS.get(d, d) for d in self.float8 or (self.dtype, self.dtype))
        return first, second

    @property
    def is_split(self) -> bool:
        """True for three products of TF32 planes instead of one of f32."""
        return self.dtype == "f32" and not self.tf32 and self.float8 is None

    @property
    def work(self) -> int | None:
        """Multiplications, where all sizes are known."""
        total = self.m * self.n * self.k * self.batches
        return total if isinstance(total, int) else None

    def bias_at(self, ev: Walk, batch: Dim, row: Dim, column: Dim) -> Any:
        """The bias of an element of the result."""
        assert self.bias is not None
        if not self.bias_by_rows:
            return ev.at(self.bias, [column])
        groups = self.batch[1] if len(self.batch) > 1 else 1
        return ev.at(self.bias, [dims.mod(batch, groups) * self.m + row])


def read_product(graph: TensorGraph) -> Product:
    """The product of a kernel whose root is a matmul, a linear layer or a convolution."""
    (root,) = [op.operation for op in graph.block.operations if op.operation.name.startswith("lamina.")]
    shapes = graph_shapes(graph)
    if root.name == "lamina.grouped_matmul":
        raise NotImplementedError("products in groups of rows on a GPU")
    if root.name == "lamina.conv":
        from .conv_product import read_conv

        return read_conv(graph, root, shapes)
    if root.name in ("lamina.channels_last_conv", "lamina.depthwise_conv"):
        from .conv_product import read_channels_last

        return read_channels_last(graph, root, shapes)
    packed = root.name == "lamina.packed_linear"  # by lines: groups are for instructions of CPUs
    linear = packed or root.name == "lamina.linear"
    a, b = root.operands[0], root.operands[1]
    a_shape, b_shape = graph.shape(a), graph.shape(b)
    a_view, b_view = strided_view(a, shapes), strided_view(b, shapes)
    lead = 0 if linear else len(a_shape) - 2
    if b_view is not None and all(s == 0 or n == 1 for n, s in zip(b_view.shape[:lead], b_view.strides)):
        lead = 0
    rank, types = len(b_shape), [str(ir.RankedTensorType(v.type).element_type) for v in (a, b)]
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


def _range(*bounds: int) -> tuple[int, ...]:
    return tuple(range(*bounds))


def graph_shapes(graph: TensorGraph) -> Shapes:
    """What `strided_view` must know of a kernel: shapes of its inputs, names of its sizes."""
    arguments = list(graph.block.arguments)
    sizes = dict(zip(arguments[len(graph.inputs) :], graph.symbols))
    return Shapes({v: graph.shape(v) for v in graph.inputs}, sizes)


def operand_index(side: Side, batch: Sequence[Dim], rows: Sequence[Dim], k: Sequence[Dim], rank: int) -> list[Dim]:
    """The index in an operand's tensor; batch dimensions that it has and the product has not (stride 0) are at 0."""
    index: list[Dim] = [0] * rank
    for dimensions, places in ((side.batch, batch), (side.rows, rows), (side.k, k)):
        for d, place in zip(dimensions, places):
            index[d] = place
    return index
