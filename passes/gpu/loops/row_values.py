"""Reductions along a row that neighbouring threads share.

Thread `t` of `threads` holds the row's vectors `t, t + threads, ...`. A row that fits into registers is unrolled: each
vector has its own symbol (`w0`, `w1`, ...), so the evaluator's memory of what it has computed *is* the register file,
and what a reduction has read is not read again. A longer row is read again by each loop over it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mlir import ir

from ....dialects import dims
from ....dialects.dims import Dim
from ..block_reduce import reduce_block
from ..gpu_kernel import GpuStage
from ..thread_values import ThreadValues
from .joint_reductions import Joint
from .rounds import Rounds
from .row_search import is_searched, search_row

UNROLL = 4  # steps of a loop over memory that are under way at once


@dataclass
class Piece:
    """Neighbouring elements of a row from `column` on, as `values` evaluates them; `mask` says if the row has them."""

    values: ThreadValues
    column: Dim
    mask: ir.Value | None = None

    def kept(self, made: list[Any], before: list[Any]) -> list[Any]:
        """Accumulators: `made`, or those `before` where the row has no such elements."""
        if self.mask is None:
            return made
        return [self.values.b.select(self.mask, x, a) for x, a in zip(made, before)]


@dataclass
class Row:
    """`vectors` vectors of a row, dealt to `threads` threads of which this one is `lane`.

    `unroll` vectors a thread are in registers (0: a loop). There are `least` vectors for certain.
    """

    stage: GpuStage
    threads: int
    lane: ir.Value
    vectors: Dim
    unroll: int
    least: int = 0

    def __post_init__(self) -> None:
        """Bind the symbols of the unrolled vectors; those beyond the end stand at vector 0 and have a mask."""
        b, least = self.stage.b, self.vectors if isinstance(self.vectors, int) else self.least
        self.names = [f"w{u}" for u in range(self.unroll)]
        self.masks: list[ir.Value | None] = []
        for u, name in enumerate(self.names):
            at = b.binary("arith.addi", self.lane, b.constant(u * self.threads, b.index))
            mask = None
            if (u + 1) * self.threads > least:
                mask = b.compare("ult", at, self.vectors)
                at = b.select(mask, at, 0)
            self.masks.append(mask)
            b.bind(name, at)

    def column(self, ev: ThreadValues, name: str) -> Dim:
        """The position of the first lane of vector `name`, plus the lane."""
        ev.ranges.add(name, self.vectors)
        return ev.flat(dims.symbol(name))

    def pieces(self, ev: ThreadValues) -> list[Piece]:
        """What this thread holds in registers, whole vectors of `ev` first."""
        return [Piece(ev, self.column(ev, name), mask) for name, mask in zip(self.names, self.masks)]

    def store(self, ev: ThreadValues, make: Callable[[Piece], None], store: Callable[[], None]) -> None:
        """`make(piece)` for all that is this thread's, and `store()` what that has made."""
        self.each(ev, make)
        store()

    def each(self, ev: ThreadValues, do: Callable[[Piece], None]) -> None:
        """`do(piece)` for all that is this thread's."""
        if self.unroll:
            for piece in self.pieces(ev):
                do(piece)
            return
        b = self.stage.b
        with b.loop("w", self.lane, b.dim(self.vectors), self.threads) as w:
            ev.ranges.add("w", self.vectors)
            do(Piece(ev, ev.flat(w)))

    def reduce(self, ev: ThreadValues, joint: Joint, row: Sequence[Dim]) -> list[Any]:
        """The accumulators of `joint`, in all threads of the row, whose position in the loops is `row`."""
        if self.unroll and is_searched(joint):
            return search_row(self, ev, joint, row)
        own = self.own(ev, joint, row)
        return reduce_block(self.stage, own, self.threads, lambda a, b: joint.combined(ev, a, b))

    def own(self, ev: ThreadValues, joint: Joint, row: Sequence[Dim]) -> list[Any]:
        """The accumulators of `joint` for what this thread has of the row."""
        accumulators = [ev.vector(v) for v in joint.inits(ev, row)]

        def step(ev: ThreadValues, column: Dim, carried: list[Any]) -> list[Any]:
            return joint.step(ev, self.loops(ev, joint, row, column), carried)

        if self.unroll:
            for piece in self.pieces(ev):
                if piece.values is not ev:  # elements after vectors
                    accumulators = joint.across_lanes(ev, accumulators)
                made = step(piece.values, piece.column, accumulators)
                accumulators = piece.kept(made, accumulators)
        else:
            ev.ranges.add("w", self.vectors)
            ev.ranges.add("wrest", self.vectors)
            rounds = Rounds(ev.b, "w", self.lane, ev.b.dim(self.vectors), self.threads, UNROLL)
            accumulators = rounds.run(accumulators, lambda w, carried: step(ev, ev.flat(w), carried))
        return joint.across_lanes(ev, accumulators)

    def loops(self, ev: ThreadValues, joint: Joint, row: Sequence[Dim], column: Dim) -> list[Dim]:
        """The position in the loops of `joint` of a column of the row at `row`."""
        loops, reductions = list(row), joint.first.reductions
        for d, i in zip(reductions, ev.ranges.delinearize(column, [joint.first.extents[d] for d in reductions])):
            loops[d] = i
        return loops
