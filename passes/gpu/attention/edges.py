"""Which scores count: masks, the diagonal, and the end of the keys, on the sums that one thread holds."""

from __future__ import annotations

from math import inf

from mlir import ir

from ....dialects import dims
from ....dialects.dims import Dim
from ...loops.index_algebra import Ranges
from ..gpu_kernel import GpuStage
from ..hopper.ptx import Ptx
from ..thread_values import ThreadValues, divisible
from .problem import Attention
from .softmax import Softmax


class Edges:
    """Masks scores of tiles of `keys` keys, of which `lane_key` is this thread's first."""

    def __init__(self, stage: GpuStage, attention: Attention, softmax: Softmax, keys: int, lane_key: Dim):
        self.stage, self.b, self.ptx = stage, stage.b, Ptx(stage)
        self.attention, self.softmax, self.keys, self.lane_key = attention, softmax, keys, lane_key
        self.layout = softmax.layout

    def masked(self, scores: list[ir.Value], head: Dim, lane_row: Dim, tile: Dim, edge: bool) -> list[ir.Value]:
        """Scores of rows from `lane_row` on with the mask added, and -inf for keys beyond the diagonal or the end, which only an `edge` tile has."""
        b, p, softmax = self.b, self.attention.product, self.softmax
        first = b.bind_unique("key", b.dim(self.keys * tile + self.lane_key))
        if softmax.exact:
            scores = [softmax.binary("mulf", x, softmax.constant(self.attention.scale)) for x in scores]
        if self.attention.mask is not None:
            scores = [self._plus_mask(x, i, head, lane_row, first) for i, x in enumerate(scores)]
        if not edge or (not self.attention.causal and divisible(p.k, self.keys)):
            return scores
        limits = []
        for row in self.layout.rows:
            end = dims.dim_min(p.k, lane_row + row + 1) if self.attention.causal else p.k
            limits.append(self.ptx.i32(b.dim(end - first)))
        greater, infinite = b.number(4, b.i64), softmax.constant(-inf)
        made = []
        for i, x in enumerate(scores):
            column = b.constant(self.layout.column(i), b.i32)
            inside = b.value("arith.cmpi", (limits[self.layout.row(i)], column), b.i1, predicate=greater)
            made.append(softmax.select(inside, x, infinite))
        return made

    def _plus_mask(self, score: ir.Value, i: int, head: Dim, lane_row: Dim, first: Dim) -> ir.Value:
        """Score number `i` of this thread plus its element of the mask, or -inf where a bool mask is false."""
        b, a, p = self.b, self.attention, self.attention.product
        assert a.mask is not None
        last = lambda x, n: dims.dim_min(x, n - 1)  # what lies beyond is not used
        row = last(lane_row + self.layout.rows[self.layout.row(i)], p.m)
        key = b.bind_unique("column", b.dim(last(first + self.layout.column(i), p.k)))
        ranges = Ranges({str(key): p.k})
        flat = b.bind_unique("line", b.dim(head * p.m + row))
        ranges.add(str(flat), p.batches * p.m)
        ev = ThreadValues(self.stage, ranges, 1)
        line = ranges.delinearize(flat, (*a.heads, a.queries))
        shape = self.stage.kernel.graph.shape(a.mask)
        full = [*line, key]
        index = [0 if n == 1 else x for n, x in zip(shape, full[len(full) - len(shape) :])]
        value = ev.at(a.mask, index)
        if isinstance(value.type, ir.IntegerType):
            on = b.value(
                "arith.cmpi", (value, b.constant(0, value.type)), b.i1, predicate=b.number(1, b.i64)
            )  # fmt: skip
            return self.softmax.select(on, score, self.softmax.constant(-inf))
        if ir.FloatType(value.type).width < 32:
            value = b.value("arith.extf", (value,), b.f32)
        elif ir.FloatType(value.type).width > 32:
            value = b.value("arith.truncf", (value,), b.f32)
        return self.softmax.binary("addf", score, value)
