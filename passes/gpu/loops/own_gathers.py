"""What the result of a row gathers at a place that is itself read: the logit of the class whose loss a row is.

Two loads, one after the other, which would begin after the row's reductions; begun before they are there by then:

    t = class[r], x = row r                          loads
    y = x[t] where lane == 0                         predicated: in a branch of its own ptxas moves the load of `t` down to it
    <reductions of the row>
    result[r] = f(y, reductions) where lane == 0

cross_entropy of 8192 x 4097 bf16 takes 17.2 us instead of 17.6, a copy 17.8 (H200).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from mlir import ir

from ....dialects.dims import Dim
from ...loops.evaluate import Evaluator
from ...loops.evaluate_walk import Index
from ...loops.tensor_graph import Generic
from ..thread_values import ThreadValues
from .loads_ahead import OWN_AHEAD, load_row, own_loads
from .row_accesses import RowAccesses
from .row_plan import RowPlan
from .row_values import Row

MOST = 2  # elements that are gathered ahead


@dataclass(frozen=True)
class Gathered:
    """The results of `generic` at `at`, in the thread that stores the row's own results."""

    generic: Generic
    at: Index
    values: list[Any]

    def recall(self, ev: ThreadValues) -> None:
        """Let `ev` know them in the branch that is being written."""
        ev.remember(self.generic.arguments[-1], self.at, lambda: self.values)


class _StoringThread(ThreadValues):
    """The evaluator of what only the thread where `storing` holds needs: others load 0, and fail no check."""

    def __init__(self, ev: ThreadValues, storing: ir.Value):
        super().__init__(ev.stage, ev.ranges, 1, ev.graph)
        self.known, self.storing = ev.known, storing

    def load_at(self, buffer: ir.Value, offset: Dim) -> ir.Value:
        b, load = self.b, partial(Evaluator.load_at, self, buffer, offset)
        element = ir.MemRefType(buffer.type).element_type
        return b.branch(self.storing, [element], lambda: [load()], lambda: [b.constant(0, element)])[0]

    def check(self, ok: Any, message: str) -> None:
        super().check(self.b.select(self.storing, ok, self.b.constant(1, self.b.i1)), message)


def gather_ahead(ev: ThreadValues, plan: RowPlan, row: Row, r: Dim) -> list[Gathered]:
    """Gather what the results of one element of row `r` need, where that needs no reduction."""
    found = list(_gathers(ev, plan, r))
    if not found or sum(len(g.op.results) for g, _ in found) > MOST:
        return []
    own = own_loads(ev, plan, row, r)
    if len(own) > OWN_AHEAD:
        return []
    load_row(ev, plan, row, r)  # not after the wait for the place of what is gathered
    b = ev.b
    storing = b.all_of([b.compare("eq", row.lane, 0), b.compare("ult", r, plan.count)])
    thread = _StoringThread(ev, storing)
    for argument, offset in own:
        thread.remember(("load", argument), (offset,), partial(ev.load, argument, offset))
    return [Gathered(g, at, [thread.at(v, at) for v in g.op.results]) for g, at in found]


def _gathers(ev: ThreadValues, plan: RowPlan, r: Dim) -> Iterator[tuple[Generic, Index]]:
    """The bodies that read an element where another one says, before any reduction, and where they do."""
    accesses = RowAccesses(plan, ev.graph, ev.ranges.copy(), 0)
    accesses.read_own(r)
    for (_, at), g in accesses.generics.items():
        if any(op.name == "tensor.extract" for op in g.body) and tuple(g.loops_of(at)) == at:
            alone = RowAccesses(plan, ev.graph, ev.ranges.copy(), 0)
            alone.at(g.op.results[0], at)
            if alone.gathers and not alone.reductions:
                yield g, at
