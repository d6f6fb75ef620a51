"""What the rows of a block add up to: the losses of a batch, the rows that count.

Each group of threads adds what its rows have in their order, and one thread the sums of the block's groups; so a stage of rows
leaves a partial result for each block, where it would leave one for each row, and the order never changes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mlir import ir

from ....dialects.dims import Dim
from ...loops.evaluate_accesses import TOKEN, Accesses
from ...loops.index_algebra import Ranges
from ..thread_values import ThreadValues
from .early_values import EarlyValues
from .joint_reductions import Joint
from .row_places import RowPlaces
from .stored import from_scratch, scratch_type, to_scratch


@dataclass
class BlockTotals:
    """The reductions `joint`, of one result each, whose elements are one for each row, and where they are left, by block."""

    joint: Joint
    partial: list[int] = field(default_factory=list)

    def loops(self, ranges: Ranges, row: Dim) -> list[Dim]:
        """The loop positions of a row's element."""
        g = self.joint.first
        loops: list[Dim] = [0] * len(g.extents)
        for d, i in zip(g.reductions, ranges.delinearize(row, [g.extents[d] for d in g.reductions])):
            loops[d] = i
        return loops

    def visit(self, walk: Accesses, row: Dim) -> None:
        """Walk what is added for `row`."""
        for g in self.joint.generics:
            walk.body(g, self.loops(walk.ranges, row), [TOKEN] * len(g.outs))

    def write(self, ev: ThreadValues, places: RowPlaces, first: ir.Value, early: EarlyValues) -> None:
        """Add what the rows in `places` have, in the `first` thread of each, and leave the block's sums in scratch memory."""
        b, stage, member = ev.b, places.stage, places.member
        if member is None:
            b.branch(first, [], lambda: self._keep(ev, self._add(ev, places, early)))
            return
        types = [ir.RankedTensorType(v.type).element_type for v in self.joint.results]
        rooms = [stage.shared(scratch_type(t), places.per_block) for t in types]

        def meet() -> list[ir.Value]:
            for room, value in zip(rooms, self._add(ev, places, early)):
                b.op("memref.store", (to_scratch(ev, value, room), room, member))
            return []

        def combine() -> list[ir.Value]:
            parts = [
                [from_scratch(ev, b.value("memref.load", (room, b.constant(k, b.index)), scratch_type(t)), t)
                 for room, t in zip(rooms, types)]
                for k in range(places.per_block)
            ]  # fmt: skip
            while len(parts) > 1:
                parts = [self.joint.combined(ev, x, y) for x, y in zip(parts[::2], parts[1::2])]
            return self._keep(ev, parts[0])

        b.branch(first, [], meet)
        stage.barrier()
        zero = b.value("arith.cmpi", (stage.thread(), b.constant(0, b.index)), b.i1, predicate=b.number(0, b.i64))
        b.branch(zero, [], combine)

    def _add(self, ev: ThreadValues, places: RowPlaces, early: EarlyValues) -> list[Any]:
        """The elements of a thread's rows, combined in their order."""
        b, one = ev.b, ThreadValues(ev.stage, ev.ranges, 1, ev.graph)
        one.known, one.together = ev.known, ev.together
        made = self.joint.inits(one, [0] * len(self.joint.first.extents))
        with early.known():
            for row, inside in places.rows:
                added = self.joint.step(one, self.loops(one.ranges, row), made)
                made = [
                    x if inside is None else b.value("arith.select", (inside, x, a), x.type)
                    for x, a in zip(added, made)
                ]
        return made

    def _keep(self, ev: ThreadValues, values: list[Any]) -> list[ir.Value]:
        """Write the sums of a block to its place in scratch memory."""
        b, stage = ev.b, ev.stage
        for number, value in zip(self.partial, values):
            buffer = stage.scratch[number]
            b.op("memref.store", (to_scratch(ev, value, buffer), buffer, stage.block()))
        return []
