"""Entries that the lanes of a warp hold in registers, put in order or merged by a bitonic network (Batcher 1968).

A warp has 32 * R slots, of which slot `lane * R + r` is register `r` of a lane. A step compares each slot with the one whose number
differs in the bits of a mask, and the lower slot gets the less entry: between registers where the mask is below R, else between
lanes, by shuffles. Two runs that are in order are one after the mask of all their bits, which pairs each slot with its mirror image,
and then single bits, from the largest to 1: so no step goes the other way.
"""

from __future__ import annotations

from collections.abc import Sequence

from mlir import ir

from ...loops.loops_builder import LoopsBuilder
from ..block_reduce import shuffle_xor

WARP = 32


class Bitonic:
    """Networks over unsigned entries, in stages of the builder `b` whose threads are lane number `lane` of a warp."""

    def __init__(self, b: LoopsBuilder, lane: ir.Value):
        self.b, self.lane = b, lane

    def sort(self, held: Sequence[ir.Value], run: int) -> list[ir.Value]:
        """Put each run of `run` slots in order."""
        size = 2
        while size <= run:
            held = self._clean(self._step(held, size - 1), size // 2)
            size *= 2
        return list(held)

    def merge(self, held: Sequence[ir.Value], run: int, slots: int) -> list[ir.Value]:
        """The least `run` of each `slots` slots, whose runs of `run` are in order: in order, in each of these runs."""
        size = 2 * run
        while size <= slots:
            held = self._clean(self._step(held, size - 1, both=True), run)
            size *= 2
        return list(held)

    def _clean(self, held: Sequence[ir.Value], size: int) -> list[ir.Value]:
        """Put each `size` slots in order, which rise and then fall, or fall and then rise."""
        bit = size // 2
        while bit:
            held = self._step(held, bit)
            bit //= 2
        return list(held)

    def _step(self, held: Sequence[ir.Value], mask: int, both: bool = False) -> list[ir.Value]:
        """Compare slots whose numbers differ in `mask`; `both` get the less entry."""
        b, count = self.b, len(held)
        less = lambda x, y: b.compare("ult", x, y)
        made = list(held)
        if mask < count:
            for r in range(count):
                if (other := r ^ mask) > r:
                    c = less(held[r], held[other])
                    made[r], made[other] = b.select(c, held[r], held[other]), b.select(c, held[other], held[r])
                    if both:
                        made[other] = made[r]
            return made
        lanes = mask // count
        others = [shuffle_xor(b, held[r ^ mask % count], lanes) for r in range(count)]
        if both:
            return [b.select(less(x, y), x, y) for x, y in zip(held, others)]
        top = b.constant(1 << lanes.bit_length() - 1, b.index)
        bit = b.value("arith.andi", (self.lane, top), b.index)
        lower = b.compare("eq", bit, 0)
        takes = [b.compare("eq", less(x, y), lower) for x, y in zip(held, others)]
        return [b.select(c, x, y) for c, x, y in zip(takes, held, others)]
