"""Stages that put words in order by some of their bits, equal ones in the order in which they come: digit by digit, the least first.

    count   a block has a tile of words:   counts[tile, d] = how many of them have digit d
    place   start[d] = all words of lesser digits + those of digit d in tiles before;
            made[start[d] + how many of digit d come before it in its tile] = word

Words that one block can hold are put in order by one stage, in shared memory. A word may have its position in bits that are not
compared: then the order says where each word came from. What a block does with its tile is in `radix_tile`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mlir import ir

from ....dialects.dims import Expr
from ..gpu_kernel import GpuKernel, GpuStage
from .radix_tile import QUAD, THREADS, RadixTile

ITEMS = 4  # words of a thread: of more, few tiles are left for as many multiprocessors; of fewer, each block reads more counts
DIGIT = 8  # bits of a pass, at most: a thread for each digit

Make = Callable[[GpuStage, Sequence[Expr]], list[ir.Value]]


class RadixSort:
    """The order of `count` words of type `word` by their bits from number `low` on; they have `bits` of these."""

    def __init__(self, kernel: GpuKernel, count: int, word: ir.IntegerType, low: int, bits: int):
        self.kernel, self.count, self.word = kernel, count, word
        self.items = min(ITEMS, -(-count // THREADS))
        self.tile = THREADS * self.items
        self.tiles = -(-count // self.tile)
        self.padded = self.tiles * self.tile
        passes = -(-bits // DIGIT)
        self.width = max(QUAD.bit_length() - 1, -(-bits // passes))
        self.digits = 1 << self.width
        self.shifts = [low + k * self.width for k in range(passes)]
        # what fills the last tile, and stays behind all words that are equal in these bits
        last = ((1 << bits) - 1) << low
        self.last = last - (1 << word.width) * (last >> word.width - 1)

    def emit(self, make: Make) -> int:
        """Write the stages, in which `make` writes the words at some positions; returns the scratch of the `padded` words in order."""
        if self.tiles == 1:
            return self._sort_tile(make)
        given, made = (self.kernel.new_scratch(self.word, self.padded) for _ in range(2))
        counts = self.kernel.new_scratch(ir.IntegerType.get_signless(32), self.tiles * self.digits)
        for number, shift in enumerate(self.shifts):
            self._count(given, counts, shift, None if number else make)
            self._place(given, made, counts, shift)
            given, made = made, given
        return given

    def _sort_tile(self, make: Make) -> int:
        """All passes in one block."""
        made = self.kernel.new_scratch(self.word, self.padded)
        tile = RadixTile(self)
        words = tile.make(make)
        for shift in self.shifts:
            ranks = tile.rank(words, shift)
            places = tile.places(ranks, tile.total())
            if shift != self.shifts[-1]:
                words = tile.exchange(words, places)
        tile.store(words, tile.stage.scratch[made], places)
        tile.stage.finish()
        return made

    def _count(self, given: int, counts: int, shift: int, make: Make | None) -> None:
        """The counts of each tile, whose words are written in the first pass."""
        tile = RadixTile(self)
        source = tile.stage.scratch[given]
        if make:
            words = tile.make(make)
            tile.store(words, source, tile.positions)
        else:
            words = tile.load(source)
        tile.rank(words, shift)
        tile.store_counts(tile.stage.scratch[counts], tile.total())
        tile.stage.finish()

    def _place(self, given: int, made: int, counts: int, shift: int) -> None:
        """Each word to its place."""
        tile = RadixTile(self)
        words = tile.load(tile.stage.scratch[given])
        earlier = tile.sum_counts(tile.stage.scratch[counts])
        ranks = tile.rank(words, shift)
        tile.store(words, tile.stage.scratch[made], tile.places(ranks, *earlier()))
        tile.stage.finish()
