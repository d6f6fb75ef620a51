"""What a block does with its tile of words in a stage of `radix_sort`: the ranks of words among those with an equal digit.

    the words of a wave:  row 0    w0  w1 ... w31     a word for each lane
                          row 1    w32 ...
    room[row, d]:         how many words of a row have digit d; then where the first of them goes

Lanes of equal digits have the same votes on all of its bits: their number is the number of bits set, a rank that of the bits of lower
lanes, and the first of them writes the number into the room. So no order depends on which lane is sooner, and nothing is atomic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

from mlir import ir

from ....dialects import dims
from ....dialects.dims import Dim, Expr
from ..block_scan import sum_before
from ..llvm_ops import ballot

if TYPE_CHECKING:
    from .radix_sort import Make, RadixSort

THREADS = 256
QUAD = 4  # digits that a thread reads counts of at once
GROUPS = 8  # of threads that read counts of different tiles, at most,
AHEAD = 16  # and of how many tiles at once


class Rank(NamedTuple):
    """A word's place in the room, and how many words of its row and digit come before it, an i32."""

    slot: ir.Value
    before: ir.Value


class RadixTile:
    """A block's tile in a new stage of `sort`."""

    def __init__(self, sort: RadixSort):
        self.sort, self.digits, self.lanes = sort, sort.digits, sort.kernel.wave
        stage = self.stage = sort.kernel.stage(THREADS, (sort.tiles, 1, 1))
        b = self.b = stage.b
        self.number, self.thread = b.bind("tile", stage.block()), b.bind("thread", stage.thread())
        self.lane, wave = (
            b.bind(n, b.dim(f(self.thread, self.lanes))) for n, f in (("lane", dims.mod), ("wave", dims.floordiv))
        )
        self.mine = [wave * sort.items + r for r in range(sort.items)]  # rows of this thread's words
        self.within = [row * self.lanes + self.lane for row in self.mine]
        self.positions = [self.number * sort.tile + at for at in self.within]
        self.rows = sort.tile // self.lanes
        self.room = stage.shared(b.i32, self.rows * self.digits)
        self.held: ir.Value | None = None
        all_have = self.digits == THREADS
        self.has_digit = None if all_have else b.compare("slt", self.thread, self.digits)
        self.digit = self.thread if all_have else b.bind("digit", b.dim(dims.dim_min(self.thread, self.digits - 1)))

    # -- words -----------------------------------------------------------------------------------------------------
    def make(self, make: Make) -> list[ir.Value]:
        """This thread's words; those beyond the last position come after all others."""
        b, count, padded = self.b, self.sort.count, self.sort.padded
        last = b.constant(self.sort.last, self.sort.word)
        nearest = [at if count == padded else dims.dim_min(at, count - 1) for at in self.positions]
        made = make(self.stage, [b.bind_unique("t", b.dim(at)) for at in nearest])
        if count == padded:
            return made
        return [b.select(b.compare("slt", at, count), word, last) for at, word in zip(self.positions, made)]

    def load(self, source: ir.Value) -> list[ir.Value]:
        """This thread's words in memory."""
        return [self._load(source, at) for at in self.positions]

    def store(self, words: Sequence[ir.Value], target: ir.Value, places: Sequence[Dim]) -> None:
        """Write this thread's words."""
        for word, at in zip(words, places):
            self.b.op("memref.store", (word, target, self.b.dim(at)))

    def exchange(self, words: Sequence[ir.Value], places: Sequence[Dim]) -> list[ir.Value]:
        """This thread's words, when all are at their places in the tile."""
        if self.held is None:
            self.held = self.stage.shared(self.sort.word, self.sort.tile)
        held = self.held
        self.store(words, held, places)
        self.stage.barrier()
        return [self._load(held, at) for at in self.within]

    # -- digits ----------------------------------------------------------------------------------------------------
    def rank(self, words: Sequence[ir.Value], shift: int) -> list[Rank]:
        """Ranks by the digit from bit `shift` on; the room has counts then."""
        b, bits = self.b, ir.IntegerType.get_signless(self.lanes)
        self._clear()
        one = b.constant(1, bits)
        lane = b.value("arith.index_cast", (b.dim(self.lane),), bits)
        lower = b.value("arith.subi", (b.value("arith.shli", (one, lane), bits), one), bits)
        ranks = []
        for row, word in zip(self.mine, words):
            digit = self._digit(word, shift)
            equal = self._equal(digit)
            before, count = (self._ones(x) for x in (b.value("arith.andi", (equal, lower), bits), equal))
            digit = b.bind_unique("digit", b.value("arith.index_cast", (digit,), b.index))
            rank = Rank(b.dim(row * self.digits + digit), before)

            def store(rank: Rank = rank, count: ir.Value = count) -> list[ir.Value]:
                b.op("memref.store", (count, self.room, rank.slot))
                return []

            b.branch(b.compare("eq", before, b.constant(0, b.i32)), [], store)
            ranks.append(rank)
        self.stage.barrier()
        return ranks

    def total(self) -> ir.Value:
        """How many words of the tile have this thread's digit."""
        return self._sum(self.counts())

    def counts(self) -> list[ir.Value]:
        """How many words of each row have this thread's digit."""
        return [self._load(self.room, row * self.digits + self.digit) for row in range(self.rows)]

    def places(self, ranks: Sequence[Rank], total: ir.Value, before: ir.Value | None = None) -> list[Expr]:
        """Where words go, if `total` words have this thread's digit, and `before` of them are in tiles before this one."""
        b = self.b
        start = sum_before(
            self.stage, total if self.has_digit is None else b.select(self.has_digit, total, b.constant(0, b.i32))
        )
        start = start if before is None else self._add(start, before)
        counts = self.counts()

        def store() -> list[ir.Value]:
            at = start
            for row, count in enumerate(counts):
                b.op("memref.store", (at, self.room, b.dim(row * self.digits + self.digit)))
                at = self._add(at, count)
            return []

        b.under([self.has_digit], store)
        self.stage.barrier()
        found = [self._add(b.value("memref.load", (self.room, rank.slot), b.i32), rank.before) for rank in ranks]
        return [b.bind_unique("place", b.value("arith.index_cast", (at,), b.index)) for at in found]

    # -- tiles -----------------------------------------------------------------------------------------------------
    def store_counts(self, counts: ir.Value, total: ir.Value) -> None:
        """Write the counts of this tile."""
        b = self.b

        def store() -> list[ir.Value]:
            b.op("memref.store", (total, counts, b.dim(self.number * self.digits + self.thread)))
            return []

        b.under([self.has_digit], store)

    def sum_counts(self, counts: ir.Value) -> Callable[[], tuple[ir.Value, ir.Value]]:
        """Read the counts of all tiles; after a barrier, this thread's digit has the first result of all, the other before this tile.

        Groups of threads read neighbouring tiles, threads of a group neighbouring digits.
        """
        b, tiles, quads = self.b, self.sort.tiles, self.digits // QUAD
        groups = min(GROUPS, THREADS // quads)
        reads = -(-tiles // groups)
        ahead = -(-reads // -(-reads // AHEAD))
        several = ir.VectorType.get([QUAD], b.i32)
        add = lambda x, y: b.value("arith.addi", (x, y), several)
        none = b.constant(0, several)
        group, quad = (
            b.bind(n, b.dim(f(self.thread, quads))) for n, f in (("group", dims.floordiv), ("quad", dims.mod))
        )

        def some(round: Dim, carried: list[ir.Value]) -> list[ir.Value]:
            total, before = carried
            numbers = [b.bind_unique("number", b.dim((round * ahead + u) * groups + group)) for u in range(ahead)]
            places = [b.dim(dims.dim_min(n, tiles - 1) * self.digits + quad * QUAD) for n in numbers]
            aligned = b.number(4 * QUAD, b.i64)
            loaded = [b.value("vector.load", (counts, at), several, alignment=aligned) for at in places]
            for n, value in zip(numbers, loaded):
                total = add(total, b.select(b.compare("slt", n, tiles), value, none))
                before = add(before, b.select(b.compare("slt", n, self.number), value, none))
            return [total, before]

        sums = [self.stage.shared(b.i32, groups * self.digits) for _ in range(2)]

        def read() -> list[ir.Value]:
            made = b.loop_carried("round", 0, -(-reads // ahead), [none, none], some)
            for value, room in zip(made, sums):
                at = b.dim(group * self.digits + quad * QUAD)
                b.op("vector.store", (value, room, at), attributes={"alignment": b.number(4 * QUAD, b.i64)})
            return []

        b.under([None if groups * quads == THREADS else b.compare("slt", group, groups)], read)

        def found() -> tuple[ir.Value, ir.Value]:
            places = [g * self.digits + self.digit for g in range(groups)]
            total, before = (self._sum([self._load(room, at) for at in places]) for room in sums)
            return total, before

        return found

    # -- values ----------------------------------------------------------------------------------------------------
    def _clear(self) -> None:
        """No counts, in all of the room."""
        b, type = self.b, ir.VectorType.get([QUAD], self.b.i32)
        none = b.constant(0, type)
        aligned, size = {"alignment": b.number(4 * QUAD, b.i64)}, self.rows * self.digits
        for first in range(0, size, QUAD * THREADS):
            at = first + self.thread * QUAD

            def store(at: Dim = at) -> list[ir.Value]:
                b.op("vector.store", (none, self.room, b.dim(at)), attributes=aligned)
                return []

            whole = first + QUAD * THREADS <= size
            b.under([None if whole else b.compare("slt", at, size)], store)
        self.stage.barrier()

    def _digit(self, word: ir.Value, shift: int) -> ir.Value:
        """An i32."""
        b, type = self.b, self.sort.word
        if shift:
            word = b.value("arith.shrui", (word, b.constant(shift, type)), type)
        digit = b.value("arith.andi", (word, b.constant(self.digits - 1, type)), type)
        return digit if type == b.i32 else b.value("arith.trunci", (digit,), b.i32)

    def _equal(self, digit: ir.Value) -> ir.Value:
        """The lanes of this wave that have the same digit, as bits."""
        b, bits = self.b, ir.IntegerType.get_signless(self.lanes)
        one, agree = b.constant(1, b.i32), []
        for k in range(self.sort.width):
            bit = b.value("arith.shrui", (digit, b.constant(k, b.i32)), b.i32) if k else digit
            bit = b.value("arith.andi", (bit, one), b.i32)
            votes = ballot(b, self.sort.kernel.ballot, self.lanes, b.compare("ne", bit, b.constant(0, b.i32)))
            others = b.value("arith.subi", (bit, one), b.i32)  # all bits where a zero agrees
            others = others if bits == b.i32 else b.value("arith.extsi", (others,), bits)
            agree.append(b.value("arith.xori", (votes, others), bits))
        return reduce(lambda x, y: b.value("arith.andi", (x, y), bits), agree)

    def _ones(self, word: ir.Value) -> ir.Value:
        """How many bits are set, an i32."""
        b = self.b
        count = b.value("llvm.intr.ctpop", (word,), word.type)
        return count if word.type == b.i32 else b.value("arith.trunci", (count,), b.i32)

    def _load(self, memref: ir.Value, at: Dim) -> ir.Value:
        return self.b.value("memref.load", (memref, self.b.dim(at)), ir.MemRefType(memref.type).element_type)

    def _add(self, x: ir.Value, y: ir.Value) -> ir.Value:
        return self.b.value("arith.addi", (x, y), x.type)

    def _sum(self, values: Sequence[ir.Value]) -> ir.Value:
        return reduce(self._add, values)
