"""Stages that take one row at a time: softmax, layer norm, sums along the last dimensions.

row r = block * rows_per_block + thread / threads
<reductions along the row, by the row's threads>            RowValues
store the row's own results, and the elements of those that have the row's length
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from mlir import ir

from ....dialects import dims
from ....dialects.dims import Dim
from ...loops.evaluate_walk import Index
from ...loops.index_algebra import Ranges
from ...loops.tensor_graph import Generic, TensorGraph
from ..gpu_kernel import GpuKernel
from ..hopper.first_rows import MOST, MOST_REDUCED, fetch_first_rows
from ..lane_places import LANE, divisible
from ..probe import choose_width
from ..streamed_loads import LEAST_BYTES, StreamedLoads, size_of
from ..thread_values import ThreadValues, Together
from .joint_reductions import joint_of
from .loads_ahead import load_ahead
from .online_sums import find_online
from .own_gathers import gather_ahead
from .row_accesses import RowAccesses
from .row_plan import FEW_ROWS, REGISTER_ROW, RowForm, RowPlan, place, rows_per_block, threads_for
from .row_search import is_searched
from .row_values import Piece, Row
from .shifted_rows import ShiftedRow
from .stored import Stored

SHIFTED_ROW = 256  # the shortest row of which a thread's element beside its vectors is little
MANY_OTHERS = 2  # vectors at other places in memory than a row's own, from which on stores have an arm for each place


class RowStage:
    """A stage for `count` rows, each by `threads` threads; it runs where `when` is 1, and is not launched where it is 0."""

    def __init__(self, kernel: GpuKernel, stored: Stored, count: Dim, threads: int, when: Dim = 1):
        self.stored, self.count, self.threads = stored, count, threads
        per_block = rows_per_block(threads, kernel.wave)
        self.stage = kernel.stage(threads * per_block, (when * dims.ceildiv(count, per_block), 1, 1))
        self._row, self._lane, self._inside = place(self.stage, threads, per_block, count)
        self._streamed = StreamedLoads(self.stage)

    def write(self, form: RowForm, unroll: int) -> list[ir.Value]:
        """Write the results of this thread's row, of which it holds `unroll` vectors in registers (0: none)."""
        ranges, make = Ranges({"r": self.count}), partial(ThreadValues, graph=form.graph)
        ev = self.stored.evaluator(self.stage, ranges, form.width, make)
        ev.streamed = self._streamed
        length = form.plan.length
        if form.shifted:
            row: Row = ShiftedRow(ev, self.threads, self._lane, unroll, length, length * self._row, form.arms)
        else:
            row = Row(self.stage, self.threads, self._lane, dims.floordiv(length, form.width), unroll)
        _emit_row(form.plan, ev, row, self._row, self._inside)
        return []


def emit_rows(kernel: GpuKernel, stored: Stored, plan: RowPlan) -> None:
    """Write the results of `plan`, whose rows have a length that is known."""
    form = _choose_form(kernel.graph, stored, plan)
    length = plan.length // form.width * form.width
    threads, unroll = threads_for(length, form.width, kernel.wave, plan.count)
    rows = RowStage(kernel, stored, plan.count, threads)
    _fetch_first(rows, form, stored)
    rows.write(form, unroll)
    rows.stage.finish()


def _fetch_first(rows: RowStage, form: RowForm, stored: Stored) -> None:
    """Let the first blocks ask for what they will read of large inputs."""
    kernel, length, count = rows.stage.kernel, form.plan.length, form.plan.count
    if not (kernel.overlaps and isinstance(length, int) and isinstance(count, int)):
        return
    per_block = rows_per_block(rows.threads, kernel.wave)
    if large := [rows.stage.inputs[a] for a in _large_rows(form, stored)]:
        most = MOST if form.plan.full else MOST_REDUCED
        fetch_first_rows(rows.stage, large, per_block * length, count // per_block, most)


def _large_rows(form: RowForm, stored: Stored) -> list[ir.Value]:
    """The large inputs of which row `r` reads the elements from `r * length` on."""
    graph, plan = form.graph, form.plan
    probe = _probe(graph, stored, plan, form.width, form.shifted)
    begins = {(a, dims.substitute(o, {"c": 0, "w": 0, LANE: 0})) for a, o in probe.loads if a in graph.inputs}
    own = [a for a in graph.inputs if (a, plan.length * dims.symbol("r")) in begins]
    return [a for a in own if (size_of(graph, a) or 0) >= LEAST_BYTES]


def _choose_form(graph: TensorGraph, stored: Stored, plan: RowPlan) -> RowForm:
    """Whole vectors, or longer ones that rows begin anywhere in."""
    whole = RowForm(plan, graph, row_width(graph, stored, plan))
    if not isinstance(plan.length, int) or not SHIFTED_ROW <= plan.length <= REGISTER_ROW:
        return whole
    return shifted_form(graph, stored, plan, whole.width) or whole


def shifted_form(graph: TensorGraph, stored: Stored, plan: RowPlan, whole: int) -> RowForm | None:
    """The form of rows that begin anywhere in vectors; None where vectors of `whole` elements are no worse.

    Those are no gain where there are several accumulators (positions of maxima beside sums): each lane has its own, to be
    combined.
    Nor where much lies otherwise (three operands of f32): what is read shifted costs about as much as two whole vectors, or a
    little less in arms (layer_norm of 8192 x 4097 f32: 66.3 us, element by element 68.0, a copy 64.5; H200). Few rows wait for
    shifts longer than for more loads (64 rows: 2.63 and 2.16; bf16 2.44 and 2.14).
    """
    if any(not is_searched(joint) for joint in plan.joints(graph) if len(joint.results) > len(joint.generics)):
        return None
    width = row_width(graph, stored, plan, shifted=True)
    otherwise = _others(_probe(graph, stored, plan, width, shifted=True), plan.length, width)
    if otherwise >= MANY_OTHERS and isinstance(plan.count, int) and plan.count <= FEW_ROWS:
        return None
    arms = otherwise >= MANY_OTHERS and isinstance(plan.length, int)
    gain = width - 2 * max(1, otherwise) * whole
    return RowForm(plan, graph, width, True, arms) if gain > 0 or arms and not gain else None


def _others(probe: RowAccesses, length: Dim, width: int) -> int:
    """How many loads of vectors are at other places in those than the row's own elements."""
    begins = {"c": width * dims.symbol("w") - length * dims.symbol("r")}
    firsts = {(a, dims.substitute(o, {**begins, LANE: 0})) for a, o in probe.loads if LANE in dims.symbols(o)}
    return sum(not divisible(first, width) for _, first in firsts)


def _emit_row(plan: RowPlan, ev: ThreadValues, row: Row, r: Dim, inside: ir.Value | None) -> None:
    """Write the results of row `r`."""
    graph, stage = ev.graph, ev.stage
    for keys in plan.passes:
        joint = joint_of(graph, keys)
        ev.together.update(dict.fromkeys(keys, _once(partial(row.reduce, ev, joint), joint.of)))
    if row.unroll and not plan.full:
        for pair in find_online(graph, stage.kernel.rough, plan.passes):
            ev.together.update(dict.fromkeys(pair.keys, _once(partial(pair.reduce, row, ev), pair.of)))
    if plan.keys and load_ahead(ev, plan, row, r) and isinstance(row, ShiftedRow):
        row.arms = False  # all that they would read is there
    gathered = gather_ahead(ev, plan, row, r) if plan.keys else []
    _force(ev, plan, r, row)
    made: list[_Made] = []

    def write(piece: Piece) -> None:
        values = piece.values
        flat = plan.flat(values.ranges, r, piece.column)
        for i in plan.full:
            value = graph.results[i]
            element = values.at(value, values.ranges.delinearize(flat, graph.shape(value)))
            made.append(_Made(values, i, flat, element, piece.mask))
        if not row.unroll:
            _write(made, inside)

    def write_own() -> list[ir.Value]:
        for g in gathered:
            g.recall(ev)
        for i in plan.rows:
            value = graph.results[i]
            ev.store(stage.outputs[i], r, ev.at(value, ev.ranges.delinearize(r, graph.shape(value))))
        return []

    if plan.full:
        row.store(ev, write, lambda: _write(made, inside))
    if plan.rows:
        b = stage.b
        first = b.compare("eq", row.lane, 0)
        b.branch(first if inside is None else b.value("arith.andi", (first, inside), b.i1), [], write_own)


def _once(reduce: Callable[[tuple[Dim, ...]], list[Any]], of: Callable[[Generic, list[Any]], list[Any]]) -> Together:
    """What gives the results `of` each of several reductions, and does all when it is asked for the first."""
    made: dict[tuple[Dim, ...], list[Any]] = {}

    def results(generic: Generic, index: Index) -> list[Any]:
        at = tuple(generic.loops_of(index))
        if at not in made:
            made[at] = reduce(at)
        return of(generic, made[at])

    return results


def row_width(graph: TensorGraph, stored: Stored, plan: RowPlan, shifted: bool = False) -> int:
    """The lanes of a row's vectors; `shifted`: of vectors that begin at any of its elements."""
    values = [graph.results[i] for i in plan.full]
    probe = partial(_probe, graph, stored, plan, shifted=shifted)
    return choose_width(values, probe, lambda width: shifted or divisible(plan.length, width))


def _probe(graph: TensorGraph, stored: Stored, plan: RowPlan, width: int, shifted: bool) -> RowAccesses:
    """What a thread reads for a vector of a row."""
    ranges = Ranges({"r": plan.count, LANE: width})
    if shifted:
        first = ranges.add("c", plan.length - (width - 1))
    else:
        first = width * ranges.add("w", dims.floordiv(plan.length, width))
    column = first + (dims.symbol(LANE) if width > 1 else 0)
    accesses = RowAccesses(plan, graph, ranges, column, stored.values)
    accesses.read_full(dims.symbol("r"), column)
    accesses.read_own(dims.symbol("r"))
    return accesses


def _force(ev: ThreadValues, plan: RowPlan, r: Dim, row: Row) -> None:
    """Do the reductions first, where all threads run: none may begin inside a branch or loop."""
    accesses = RowAccesses(plan, ev.graph, ev.ranges.copy(), 0)
    if row.names:
        accesses.read_full(r, row.column(ev, row.names[0]))
    accesses.read_own(r)
    for reduction in accesses.reductions:
        if reduction.generic.arguments[-1] in accesses.only:
            ev.at(reduction.generic.op.results[0], reduction.index)


@dataclass
class _Made:
    """What is to be stored at `flat` of result number `result`, where `mask` holds."""

    values: ThreadValues
    result: int
    flat: Dim
    value: ir.Value
    mask: ir.Value | None

    def store(self) -> list[ir.Value]:
        self.values.store(self.values.stage.outputs[self.result], self.flat, self.value)
        return []


def _write(made: list[_Made], inside: ir.Value | None) -> None:
    """Store what has been made, under its masks; empties the list."""
    for m in made:
        m.values.b.under((m.mask, inside), m.store)
    made.clear()
