"""Results of 16 bits in rows that begin anywhere: N is odd, or not known to be a multiple of 8.

Four lanes hold 32 neighbouring columns of a row, eight each. Stored as they lie, they would be pieces of 2 bytes. But with
`d` columns more (0 … 7, from the row's address) each lane's eight are 16 aligned bytes:

    lane          0        1        2        3        0 of the next 32
    has      |--------|--------|--------|--------|--------
    stores        |--------|--------|--------|--------|          d = 4: the last d of its own, the first of the next lane's

So each lane gets the next lane's words, shifts both by `d`, and stores 16 bytes; the ends of a tile element by element.
"""

from __future__ import annotations

from collections.abc import Sequence

from mlir import ir

from ....dialects import dims
from ....dialects.dims import Dim
from ..gpu_kernel import WARP, GpuStage
from ..hopper.ptx import Ptx
from ..shift_elements import as_vector, shift_words

EIGHT = 8  # columns of a lane
BYTES = 2  # of an element
GROUP = 32  # columns of four lanes


class UnalignedRows:
    """Writes rows of `buffer`; `quad` is the symbol of the thread's number among four."""

    def __init__(self, stage: GpuStage, ptx: Ptx, buffer: ir.Value):
        self.stage, self.ptx, self.b, self.buffer = stage, ptx, stage.b, buffer
        self.element = ir.MemRefType(buffer.type).element_type

    def write(
        self, offset: Dim, column: Dim, words: Sequence[Sequence[ir.Value]], conditions: Sequence[ir.Value],
        first: Dim, end: Dim,
    ) -> None:  # fmt: skip
        """Write a thread's part of a row, columns `first … end`, where the `conditions` hold.

        `words[g]` are four i32 of columns `column + 32 g + 8 quad …`; column 0 of the row is element `offset`.
        """
        b, quad = self.b, dims.symbol("quad")
        position = b.bind_unique("position", b.dim(offset + column))
        ahead = b.value("arith.andi", (b.dim(0 - position), b.constant(EIGHT - 1, b.index)), b.index)
        self.distance = b.value("arith.muli", (self.ptx.i32(ahead), b.constant(BYTES, b.i32)), b.i32)
        self.is_first = self.b.compare("eq", quad, 0)
        self.following = self._following_lane()
        own_column = column + EIGHT * quad + b.bind_unique("ahead", ahead)
        zero = b.constant(0, b.i32)
        for g in range(-1, len(words)):  # before the first group only the last lane's has columns of this tile
            own = words[g] if g >= 0 else [zero] * 4
            after = words[g + 1] if g + 1 < len(words) else own
            shifted = self._shifted(own, self._from_next_lane(own, after))
            start = b.bind_unique("start", b.dim(own_column + GROUP * g))

            def store(shifted: ir.Value = shifted, start: Dim = start) -> list[ir.Value]:
                inside = self.ptx.within(start, first, end - (EIGHT - 1))
                b.branch(
                    self.b.all_of(inside),
                    [],
                    lambda: self._whole(offset + start, shifted),
                    lambda: self._single(offset, start, shifted, first, end),
                )
                return []

            if conditions:
                b.branch(self.b.all_of(conditions), [], store)
            else:
                store()

    # -- shifting --------------------------------------------------------------------------------------------------
    def _following_lane(self) -> ir.Value:
        """The lane after this one among its four."""
        b, quad = self.b, dims.symbol("quad")
        lane = b.value("arith.remui", (self.stage.thread(), b.constant(WARP, b.index)), b.index)
        return self.ptx.i32(b.bind_unique("lane", lane) - quad + dims.mod(quad + 1, 4))

    def _from_next_lane(self, own: Sequence[ir.Value], after: Sequence[ir.Value]) -> list[ir.Value]:
        """The next lane's words, for the last lane those that the first one has of the group after."""
        b = self.b
        sent = [b.select(self.is_first, y, x) for x, y in zip(own, after)]
        return [self.ptx.shuffle("idx", x, self.following) for x in sent]

    def _shifted(self, own: Sequence[ir.Value], coming: Sequence[ir.Value]) -> ir.Value:
        """Eight elements from number `ahead` on, of sixteen in eight words."""
        made = shift_words(self.b, [*own, *coming], self.distance, EIGHT * BYTES, BYTES, len(own))
        return as_vector(self.b, made, EIGHT, self.element)

    # -- stores ----------------------------------------------------------------------------------------------------
    def _whole(self, place: Dim, value: ir.Value) -> list[ir.Value]:
        b = self.b
        alignment = ir.IntegerAttr.get(b.i64, 16)
        b.op("vector.store", (value, self.buffer, b.dim(place)), attributes={"alignment": alignment})
        return []

    def _single(self, offset: Dim, start: Dim, value: ir.Value, first: Dim, end: Dim) -> list[ir.Value]:
        """Store what of eight columns from `start` on is in `first … end`, one by one."""
        b = self.b
        for i in range(EIGHT):

            def one(i: int = i) -> list[ir.Value]:
                b.op("memref.store", (b.extract(value, i), self.buffer, b.dim(offset + start + i)))
                return []

            b.branch(self.b.all_of(self.ptx.within(start + i, first, end)), [], one)
        return []
