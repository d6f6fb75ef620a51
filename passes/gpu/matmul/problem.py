"""The matrix product at the root of a GPU kernel, whatever op it is.

    y[batch, m, n] = sum_k a[batch, m, k] * b[batch, n, k] (+ bias[n], or bias[m])

`read_product` finds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from mlir import ir

from ....dialects import dims
from ....dialects.dims import Dim
from ...loops.evaluate_walk import Walk
from ...loops.strided_view import Shapes, View, merge
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
