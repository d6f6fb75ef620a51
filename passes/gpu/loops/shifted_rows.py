"""Rows that begin anywhere, in whole vectors: a row of 4097 elements begins at any element of an aligned vector.

What lies as the results do has row `r` from element `n * r` on. Threads take the aligned vectors that are all in the row, and
one element each of what is left at its ends, at most `2 V - 2`:

    memory      |--------|--------|-- ... --|--------|        V elements each
    row            e e e |--------|-- ... --|e e              vector 0 is number `first = ceil(n * r / V)`

To the index algebra a vector is `c + lane` with a column `c`, which is written out as `V * (first + w) - n * r` to see what is
aligned (`begins`). What lies otherwise (weights of a norm) is read in aligned parts and shifted (unaligned_loads.py). How far
is the same for a whole row. Where much is shifted, stores have a branch for each distance (`arms`), in which no words are
chosen at run time: layer_norm of 8192 x 4097 bf16 takes 36.1 µs instead of 37.3, a copy 33.5 (H200).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

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

    def __init__(
        self, ev: ThreadValues, threads: int, lane: ir.Value, unroll: int, length: Dim, start: Dim, arms: bool = False
    ):
        b, width = ev.b, ev.width
        first = b.bind("first", b.dim(dims.ceildiv(start, width)))
        self.skipped = width * first - start  # elements before the first vector
        self.length, self.values, self.arms = length, ev, arms
        vectors = b.binary("arith.divui", b.dim(length - self.skipped), b.constant(width, b.index))
        count, least = b.bind("vectors", vectors), (length - (width - 1)) // width if isinstance(length, int) else 0
        super().__init__(ev.stage, threads, lane, count, unroll, least=least)
        self._vectors = self.names
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
        return [*super().pieces(ev), self.element()]

    def element(self) -> Piece:
        """This thread's element beside the vectors."""
        self._single.ranges.add("e", self.length)
        return Piece(self._single, dims.symbol("e"), self._has_element)

    def store(self, ev: ThreadValues, make: Callable[[Piece], None], store: Callable[[], None]) -> None:
        if not self.arms:
            super().store(ev, make, store)
            return

        def vectors() -> list[ir.Value]:
            for piece in super(ShiftedRow, self).pieces(ev):
                make(piece)
            store()
            return []

        self._in_arms(vectors, 0, ev.width)
        make(self.element())
        store()

    def _in_arms(self, do: Callable[[], list[ir.Value]], low: int, high: int) -> list[ir.Value]:
        """`do()` for each number of elements before the first vector, `low` to `high - 1`, in a branch of its own."""
        width = self.values.width
        if high - low == 1:
            columns = (width * dims.symbol(v) + low for v in self._vectors)
            self.values.begins_here = dict(zip(self.names, columns))
            do()
            self.values.begins_here = {}
            return []
        middle = (low + high) // 2
        less = self.stage.b.compare("slt", self.skipped, middle)
        halves = (partial(self._in_arms, do, *ends) for ends in ((low, middle), (middle, high)))
        return self.stage.b.branch(less, [], *halves)
