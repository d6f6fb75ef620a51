"""Which scores count: masks, the diagonal, and the end of the keys, on the sums that one thread holds."""

from __future__ import annotations

from math import inf

from mlir import ir

from ....dialects import dims
from ....dialects.dims import Dim
from ...loops.index_algebra import Ranges
from ..gpu_kernel import GpuStage
from ..hopper.ptx import Ptx
from ..lane_places import divisible
from ..thread_values import ThreadValues
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
            scores = self._plus_mask(scores, head, lane_row, tile)
        if not edge or (not self.attention.causal and divisible(p.k, self.keys)):
            return scores
        limits = []
        for row in self.layout.rows:
            end = dims.dim_min(p.k, lane_row + row + 1) if self.attention.causal else p.k
            limits.append(self.ptx.i32(b.dim(end - first)))
        infinite = softmax.constant(-inf)
        made = []
        for i, x in enumerate(scores):
            column = b.constant(self.layout.column(i), b.i32)
            inside = b.compare("sgt", limits[self.layout.row(i)], column)
            made.append(softmax.select(inside, x, infinite))
        return made

    def _plus_mask(self, scores: list[ir.Value], head: Dim, lane_row: Dim, tile: Dim) -> list[ir.Value]:
        """Scores plus their elements of the mask, or -inf where a bool mask is false; neighbouring keys are read at once."""
        layout, keys = self.layout, self.attention.product.k
        neighbours = (layout.row(0), layout.column(0) + 1) == (layout.row(1), layout.column(1))
        width = 2 if neighbours and divisible(self.lane_key, 2) and divisible(keys, 2) else 1
        made = []
        for i in range(0, len(scores), width):
            elements = self._elements(i, width, head, lane_row, tile)
            made += [self._masked_by(x, element) for x, element in zip(scores[i : i + width], elements)]
        return made

    def _elements(self, i: int, width: int, head: Dim, lane_row: Dim, tile: Dim) -> list[ir.Value]:
        """The mask's elements for this thread's scores from number `i` on; those beyond its end are not used."""
        b, a, p = self.b, self.attention, self.attention.product
        assert a.mask is not None
        last = lambda x, n: dims.dim_min(x, n - 1)
        row = last(lane_row + self.layout.rows[self.layout.row(i)], p.m)
        vectors = dims.floordiv(p.k, width)
        place = self.keys // width * tile + dims.floordiv(self.lane_key, width) + self.layout.column(i) // width
        position = b.bind_unique("column", b.dim(last(place, vectors)))
        flat = b.bind_unique("line", b.dim(head * p.m + row))
        ranges = Ranges({str(position): vectors, str(flat): p.batches * p.m})
        ev = ThreadValues(self.stage, ranges, width)
        full = [*ranges.delinearize(flat, (*a.heads, a.queries)), ev.flat(position)]
        shape = self.stage.kernel.graph.shape(a.mask)
        value = ev.at(a.mask, [0 if n == 1 else x for n, x in zip(shape, full[len(full) - len(shape) :])])
        if width == 1:
            return [value]
        return b.elements(ev.vector(value))

    def _masked_by(self, score: ir.Value, value: ir.Value) -> ir.Value:
        b = self.b
        if isinstance(value.type, ir.IntegerType):
            on = b.compare("ne", value, b.constant(0, value.type))
            return self.softmax.select(on, score, self.softmax.constant(-inf))
        if ir.FloatType(value.type).width < 32:
            value = b.value("arith.extf", (value,), b.f32)
        elif ir.FloatType(value.type).width > 32:
            value = b.value("arith.truncf", (value,), b.f32)
        return self.softmax.binary("addf", score, value)
