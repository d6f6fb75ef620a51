"""Reductions over all rows of what reductions along each row give: the mean of the losses of a batch.

    loss[r] = f(max over x[r, :], sum over exp(x[r, :] - max), target[r])        partial[block] = sum of loss[r] of its rows
                                                                          then   result = sum of partial[:]

No loss is written, and the second stage reads one number of each block.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ....dialects import dims
from ...loops.evaluate_accesses import Reduction
from ...loops.loop_nest import Space
from ..gpu_kernel import GpuKernel
from ..probe import Probe
from .block_totals import BlockTotals
from .emit_reductions import RowStages
from .emit_rows import RowStage, choose_form
from .joint_reductions import passes
from .row_plan import RowPlan
from .stored import Stored

TURNS = 4  # rows of a thread, in turn: fewer partial results
RESIDENT = 768  # threads of a multiprocessor that have registers for a shifted row and the next one: 80 each, where ptxas takes 96

Rows = Callable[[Space, Probe], "RowPlan | None"]  # how rows that are read so are taken


def emit_row_totals(
    kernel: GpuKernel, stored: Stored, reductions: Sequence[Reduction], results: Sequence[int], rows: Rows
) -> bool:
    """Append the stages for `results` of one element, if that is what `reductions`, all that they need, are; else nothing."""
    total = _totals(kernel, stored, reductions)
    if total is None:
        return False
    count = dims.product(total.joint.first.extents)
    space = Space.of([("f", count, False)])
    probe = Probe(kernel.graph, space.ranges(), stored.values)
    total.visit(probe, space.values["f"])
    plan = rows(space, probe)
    if plan is None or plan.count != count or not isinstance(count, int) or not isinstance(plan.length, int):
        return False
    plan.total = total
    form = choose_form(kernel.graph, stored, plan)
    threads, unroll = form.threads(kernel.wave)
    turns = form.turns(threads, unroll, TURNS, kernel.wave)
    last = RowStages(kernel, stored, total.joint, list(results))
    total.partial = last.scratch(turns.blocks)
    stage = RowStage(stored, turns.take(kernel), threads)
    if turns.turns > 1 and form.shifted:
        stage.stage.blocks_per_sm = RESIDENT // stage.stage.threads
    stage.write(form, unroll)
    stage.stage.finish()
    last.finish(turns.blocks, total.partial)
    return True


def _totals(kernel: GpuKernel, stored: Stored, reductions: Sequence[Reduction]) -> BlockTotals | None:
    """Those of `reductions` that others are inside of, if they have one result each and can be one pass."""
    outer = [r for r in reductions if not any(dims.symbols(i) for i in r.index)]
    if not outer or len(outer) == len(reductions):
        return None
    joint, *others = passes(kernel.graph, stored.values, outer)
    g = joint.first
    if others or dims.product(g.extents) != dims.product(g.extents[d] for d in g.reductions):
        return None
    return BlockTotals(joint)
