"""Which rows a block takes: one, or as many at a time as its threads are enough for; and some more in turn.

    row = together * (turns * group + turn) + member

Rows `0 … together - 1` are taken at a time: by parts of one block, or, where rows begin anywhere in a vector (`alike`), by as
many blocks: the rows of a block then begin at the same element of one, so that what lies otherwise is shifted once for all.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlir import ir

from ....dialects import dims
from ....dialects.dims import Dim
from ...loops.index_algebra import Ranges
from ..gpu_kernel import GpuKernel, GpuStage

BLOCK = 128  # threads of a block that takes several short rows


@dataclass
class RowPlaces:
    """What one thread has to do: `rows` in turn, each with what says whether there is such a row (None: there is).

    `lane` is the thread's number in a row; all rows begin where row `like` does in a vector.
    """

    stage: GpuStage
    lane: ir.Value
    rows: list[tuple[Dim, ir.Value | None]]
    like: Dim
    ranges: Ranges  # of the symbols in `rows` and `like`
    member: ir.Value | None = None  # which of the rows that a block takes at a time; None where that is one
    per_block: int = 1


def rows_per_block(threads: int, wave: int) -> int:
    """Rows of a block: several where each belongs to lanes of one wave; those of more waves meet at barriers."""
    return max(1, BLOCK // threads) if threads <= wave else 1


def take_row(kernel: GpuKernel, count: Dim, threads: int, when: Dim = 1) -> RowPlaces:
    """Begin a stage for `count` rows, of which each group of `threads` threads takes one; `when` is 0 where none does."""
    per_block = rows_per_block(threads, kernel.wave)
    stage = kernel.stage(threads * per_block, (when * dims.ceildiv(count, per_block), 1, 1))
    row, lane, inside = place(stage, threads, per_block, count)
    return RowPlaces(stage, lane, [(row, inside)], row, Ranges({"r": count}), per_block=per_block)


@dataclass(frozen=True)
class Turns:
    """`count` rows of `threads` threads each, of which every group of threads takes `turns` in turn.

    Where `alike` is more than 1, a row is a block's, and row numbers of a block are equal modulo `alike`.
    """

    count: int
    threads: int
    turns: int
    alike: int
    wave: int

    @property
    def per_block(self) -> int:
        """Rows that a block takes at a time."""
        return rows_per_block(self.threads, self.wave)

    @property
    def together(self) -> int:
        """Rows next to each other that are taken at a time."""
        return max(self.per_block, self.alike)

    @property
    def groups(self) -> int:
        """How many blocks there are, or groups of blocks whose rows are next to each other."""
        return -(-self.count // (self.together * self.turns))

    @property
    def blocks(self) -> int:
        """How many blocks there are."""
        return self.groups * self.together // self.per_block

    def take(self, kernel: GpuKernel) -> RowPlaces:
        """Begin the stage."""
        stage = kernel.stage(self.threads * self.per_block, (self.blocks, 1, 1))
        b, lane, member = stage.b, stage.thread(), None
        group, like = b.bind("group", stage.block()), dims.symbol("member") if self.together > 1 else 0
        if self.per_block > 1:
            size = b.constant(self.threads, b.index)
            member, lane = (b.binary(op, stage.thread(), size) for op in ("arith.divui", "arith.remui"))
            b.bind("member", member)
        elif self.alike > 1:
            size = b.constant(self.alike, b.index)
            group = b.bind("group", b.binary("arith.divui", stage.block(), size))
            b.bind("member", b.binary("arith.remui", stage.block(), size))
        ranges = Ranges({"group": self.groups, "member": self.together})
        rows = [self._row(stage, ranges, turn, self.turns * group + turn, like) for turn in range(self.turns)]
        return RowPlaces(stage, lane, rows, like, ranges, member, self.per_block)

    def _row(self, stage: GpuStage, ranges: Ranges, turn: int, number: Dim, like: Dim) -> tuple[Dim, ir.Value | None]:
        """The row of a turn, the last one that there is where there is none, and what says so."""
        b, together, inside = stage.b, self.together, None
        if self.count % (together * self.turns):
            at, last = b.dim(number), b.dim(dims.floordiv(self.count - 1 - like, together))
            inside = b.value("arith.cmpi", (at, last), b.i1, predicate=b.number(3, b.i64))
            number = b.bind(f"turn{turn}", b.value("arith.minsi", (at, last), b.index))
            ranges.add(f"turn{turn}", -(-self.count // together))
        return together * number + like, inside


def place(stage: GpuStage, threads: int, per_block: int, count: Dim) -> tuple[Dim, ir.Value, ir.Value | None]:
    """The row of this thread (bound to symbol `r`), its number in the row, and a mask where rows may be missing."""
    b = stage.b
    if per_block == 1:
        return b.bind("r", stage.block()), stage.thread(), None
    size = b.constant(threads, b.index)
    first = b.binary("arith.muli", stage.block(), b.constant(per_block, b.index))
    at = b.binary("arith.addi", first, b.binary("arith.divui", stage.thread(), size))
    lane = b.binary("arith.remui", stage.thread(), size)
    if isinstance(count, int) and count % per_block == 0:
        return b.bind("r", at), lane, None
    end = b.dim(count)
    inside = b.value("arith.cmpi", (at, end), b.i1, predicate=b.number(6, b.i64))
    last = b.binary("arith.subi", end, b.constant(1, b.index))
    return b.bind("r", b.value("arith.minsi", (at, last), b.index)), lane, inside
