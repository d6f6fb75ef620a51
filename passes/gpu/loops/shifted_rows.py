"""Rows that begin anywhere, in whole vectors: a row of 4097 elements begins at any element of an aligned vector.

What lies as the results do has row `r` from element `n * r` on. Threads take the aligned vectors that are all in the row, and
one element each of what is left at its ends, at most `2 V - 2`:

    memory      |--------|--------|-- ... --|--------|        V elements each
    row            e e e |--------|-- ... --|e e              vector 0 is number `first = ceil(n * r / V)`

To the index algebra a vector is `c + lane` with a column `c`, which is written out as `V * (first + w) - n * r` to see what is
aligned (`begins`). What lies otherwise (weights of a norm) is read in aligned parts and shifted (unaligned_loads.py).
"""

from __future__ import annotations

from mlir import ir

from ....dialects import dims
from ....dialects.dims import Dim
from ..lane_places import LANE
from ..thread_values import ThreadValues
from .row_values import Piece, Row


class ShiftedRow(Row):
    """A row of `length` elements, the first of which is element `start` of what lies as the results do.

    `unroll` vectors for each of `threads` threads are as many as a row may have.
    """

    def __init__(self, ev: ThreadValues, threads: int, lane: ir.Value, unroll: int, length: Dim, start: Dim):
        b, width = ev.b, ev.width
        first = b.bind("first", b.dim(dims.ceildiv(start, width)))
        self.skipped = width * first - start  # elements before the first vector
        self.length, self.values = length, ev
        vectors = b.binary("arith.divui", b.dim(length - self.skipped), b.constant(width, b.index))
        count, least = b.bind("vectors", vectors), (length - (width - 1)) // width if isinstance(length, int) else 0
        super().__init__(ev.stage, threads, lane, count, unroll, least=least)
        self.names = [self._column(f"c{u}", name) for u, name in enumerate(self.names)]
        self._has_element = self._bind_element()
        self._single = ThreadValues(ev.stage, ev.ranges, 1, ev.graph)
        self._single.known, self._single.together = ev.known, ev.together

    def _column(self, name: str, vector: str) -> str:
        """Bind symbol `name` to the column of a vector."""
        place = self.values.width * dims.symbol(vector) + self.skipped
        self.values.begins[name] = place
        self.stage.b.bind(name, self.stage.b.dim(place))
        return name

    def _bind_element(self) -> ir.Value:
        """Bind symbol `e` to the column of this thread's element; true where the row has it.

        Threads count those before the first vector, then those after the last one.
        """
        b, lane = self.stage.b, self.lane
        before = b.compare("slt", lane, self.skipped)
        after = b.binary("arith.addi", lane, b.dim(self.values.width * self.vectors))
        column = b.select(before, lane, after)
        inside = b.compare("slt", column, self.length)
        b.bind("e", b.select(inside, column, 0))
        return inside

    def column(self, ev: ThreadValues, name: str) -> Dim:
        end, most = ev.width * self.threads * (self.names.index(name) + 1), self.length - (ev.width - 1)
        ev.ranges.add(name, min(most, end) if isinstance(most, int) else most)
        return dims.symbol(name) + dims.symbol(LANE)

    def pieces(self, ev: ThreadValues) -> list[Piece]:
        self._single.ranges.add("e", self.length)
        return [*super().pieces(ev), Piece(self._single, dims.symbol("e"), self._has_element)]
