"""Stages that take one row at a time: softmax, layer norm, sums along the last dimensions.

row r = block * rows_per_block + thread / threads           RowPlaces: of several in turn, each
<loads of what is needed later>                             load_ahead, EarlyValues
<reductions along the row, by the row's threads>            Row
store the row's own results, and the elements of those that have the row's length; add up what rows have one of
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from mlir import ir

from ....dialects import dims
from ....dialects.dims import Dim
from ...loops.evaluate_walk import Index
from ...loops.index_algebra import Ranges
from ...loops.tensor_graph import Generic, TensorGraph
from ..gpu_kernel import GpuKernel
from ..lane_places import LANE, divisible
from ..probe import Probe, choose_width
from ..streamed_loads import StreamedLoads
from ..thread_values import ThreadValues, Together
from .early_values import EarlyValues, load_ahead
from .joint_reductions import joint_of
from .kept_loads import KeepingValues
from .row_places import RowPlaces, take_row
from .row_plan import REGISTER_ROW, RowForm, RowPlan
from .row_search import is_searched
from .row_values import Piece, Row
from .shifted_rows import ShiftedRow
from .stored import Stored

SHIFTED_ROW = 256  # the shortest row of which a thread's element beside its vectors is little
SHIFTED, SHIFTED_TURNS = 2, 4  # with so much that is shifted, so many rows in turn share it
SHIFTED_RESIDENT = 768  # threads of a multiprocessor that have registers for such a row: 80 each


class RowStage:
    """A stage whose blocks take rows as `places` says, each by `threads` threads."""

    def __init__(self, stored: Stored, places: RowPlaces, threads: int):
        self.stored, self.places, self.threads = stored, places, threads
        self.stage = places.stage
        self._streamed = StreamedLoads(self.stage)

    def write(self, form: RowForm, unroll: int) -> list[ir.Value]:
        """Write the results of this thread's rows, of each of which it holds `unroll` vectors in registers (0: none)."""
        places = self.places
        make = partial(KeepingValues if form.plan.full and len(places.rows) > 1 else ThreadValues, graph=form.graph)
        ev = self.stored.evaluator(self.stage, places.ranges.copy(), form.width, make)
        ev.streamed = self._streamed
        length = form.plan.length
        if form.shifted:
            row: Row = ShiftedRow(ev, self.threads, places.lane, unroll, length, length * places.like)
        else:
            row = Row(self.stage, self.threads, places.lane, dims.floordiv(length, form.width), unroll)
        _emit_rows(form.plan, ev, row, places)
        return []


def emit_rows(kernel: GpuKernel, stored: Stored, plan: RowPlan) -> None:
    """Write the results of `plan`, whose rows have a length that is known."""
    form = choose_form(kernel.graph, stored, plan)
    threads, unroll = form.threads(kernel.wave)
    turns = (
        form.turns(threads, unroll, SHIFTED_TURNS, kernel.wave)
        if kernel.aligned and form.otherwise >= SHIFTED and isinstance(plan.count, int)
        else None
    )
    places = turns.take(kernel) if turns and turns.turns > 1 else take_row(kernel, plan.count, threads)
    rows = RowStage(stored, places, threads)
    if turns and turns.turns > 1:
        rows.stage.blocks_per_sm = SHIFTED_RESIDENT // rows.stage.threads
    rows.write(form, unroll)
    rows.stage.finish()


def choose_form(graph: TensorGraph, stored: Stored, plan: RowPlan) -> RowForm:
    """Whole vectors, or longer ones that rows begin anywhere in."""
    whole = RowForm(plan, graph, row_width(graph, stored, plan))
    if not isinstance(plan.length, int) or not SHIFTED_ROW <= plan.length <= REGISTER_ROW:
        return whole
    return shifted_form(graph, stored, plan, whole.width) or whole


def shifted_form(graph: TensorGraph, stored: Stored, plan: RowPlan, whole: int) -> RowForm | None:
    """The form of rows that begin anywhere in vectors; None where vectors of `whole` elements are no worse.

    Those are no gain where there are several accumulators (positions of maxima beside sums): each lane has its own, to be
    combined.
    Nor where much lies otherwise (two weights of f32): what is read shifted costs about as much as two whole vectors.
    """
    if any(not is_searched(joint) for joint in plan.joints(graph) if len(joint.results) > len(joint.generics)):
        return None
    width = row_width(graph, stored, plan, shifted=True)
    otherwise = _others(_probe(graph, stored, plan, width, shifted=True), plan.length, width)
    return RowForm(plan, graph, width, True, otherwise) if width > 2 * max(1, otherwise) * whole else None


def _others(probe: Probe, length: Dim, width: int) -> int:
    """How many loads of vectors are at other places in those than the row's own elements."""
    begins = {"c": width * dims.symbol("w") - length * dims.symbol("r")}
    firsts = {(a, dims.substitute(o, {**begins, LANE: 0})) for a, o in probe.loads if LANE in dims.symbols(o)}
    return sum(not divisible(first, width) for _, first in firsts)


def _emit_rows(plan: RowPlan, ev: ThreadValues, row: Row, places: RowPlaces) -> None:
    """Write the results of the rows in `places`."""
    for keys in plan.passes:
        ev.together.update(dict.fromkeys(keys, _in_one_pass(ev, row, keys)))
    b, rows = ev.b, places.rows
    first = b.value("arith.cmpi", (row.lane, b.constant(0, b.index)), b.i1, predicate=b.number(0, b.i64))
    early = EarlyValues(plan, ev, rows)
    keeps = isinstance(ev, KeepingValues)
    if plan.full or early or len(rows) > 1:
        load_ahead(ev, plan, row, rows[0][0], several=len(rows) > 1)
    early.load(first)
    if keeps:
        ev.keep({s for r, _ in rows for s in dims.symbols(r)} - dims.symbols(places.like))
    for n, (r, inside) in enumerate(rows):
        if n + 1 < len(rows) and not keeps:
            load_ahead(ev, plan, row, rows[n + 1][0], several=True)
        _force(ev, plan, r)
        if plan.full:
            _write_full(plan, ev, row, r, inside)
        if keeps:
            ev.forget()
    if plan.rows:
        for r, inside in rows:
            condition = first if inside is None else b.value("arith.andi", (first, inside), b.i1)
            b.branch(condition, [], partial(_write_own, plan, ev, r, early))
    if plan.total is not None:
        plan.total.write(ev, places, first, early)


def _write_full(plan: RowPlan, ev: ThreadValues, row: Row, r: Dim, inside: ir.Value | None) -> None:
    """Write the elements of row `r`."""
    graph, made = ev.graph, list[_Made]()

    def write(piece: Piece) -> None:
        values = piece.values
        flat = plan.flat(values.ranges, r, piece.column)
        for i in plan.full:
            value = graph.results[i]
            element = values.at(value, values.ranges.delinearize(flat, graph.shape(value)))
            made.append(_Made(values, i, flat, element, piece.mask))
        if not row.unroll:
            _write(made, inside)

    row.each(ev, write)
    _write(made, inside)


def _write_own(plan: RowPlan, ev: ThreadValues, r: Dim, early: EarlyValues) -> list[ir.Value]:
    """Write the results of which row `r` has one, in one thread."""
    graph = ev.graph
    with early.known():
        for i in plan.rows:
            value = graph.results[i]
            ev.store(ev.stage.outputs[i], r, ev.at(value, ev.ranges.delinearize(r, graph.shape(value))))
    return []


def _in_one_pass(ev: ThreadValues, row: Row, keys: Sequence[ir.Value]) -> Together:
    """What gives the results of each of these reductions, and does all when it is asked for the first."""
    joint = joint_of(ev.graph, keys)
    made: dict[tuple[Dim, ...], list[ir.Value]] = {}

    def reduce(generic: Generic, index: Index) -> list[ir.Value]:
        at = tuple(ev.loops_of(generic, index))
        if at not in made:
            made[at] = row.reduce(ev, joint, at)
        return joint.of(generic, made[at])

    return reduce


def row_width(graph: TensorGraph, stored: Stored, plan: RowPlan, shifted: bool = False) -> int:
    """The lanes of a row's vectors; `shifted`: of vectors that begin at any of its elements."""
    values = [graph.results[i] for i in plan.full]
    probe = partial(_probe, graph, stored, plan, shifted=shifted)
    return choose_width(values, probe, lambda width: shifted or divisible(plan.length, width))


def _probe(graph: TensorGraph, stored: Stored, plan: RowPlan, width: int, shifted: bool) -> Probe:
    """What a thread reads for a vector of a row."""
    ranges = Ranges({"r": plan.count, LANE: width})
    if shifted:
        first = ranges.add("c", plan.length - (width - 1))
    else:
        first = width * ranges.add("w", dims.floordiv(plan.length, width))
    column = first + (dims.symbol(LANE) if width > 1 else 0)
    accesses = Probe(graph, ranges, stored.values, column)
    accesses.only = set(plan.keys)
    for i in plan.full:
        flat = plan.flat(ranges, dims.symbol("r"), column)
        accesses.at(graph.results[i], ranges.delinearize(flat, graph.shape(graph.results[i])))
    plan.visit(accesses, dims.symbol("r"))
    return accesses


def _force(ev: ThreadValues, plan: RowPlan, r: Dim) -> None:
    """Do the reductions first, where all threads run: none may begin inside a branch or loop."""
    probe = Probe(ev.graph, ev.ranges.copy(), set(), 0)
    probe.only = set(plan.keys)
    plan.visit(probe, r)
    for reduction in probe.reductions:
        if reduction.generic.arguments[-1] in probe.only:
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
        b, conditions = m.values.b, [c for c in (m.mask, inside) if c is not None]
        if not conditions:
            m.store()
            continue
        condition = conditions[0] if len(conditions) == 1 else b.value("arith.andi", conditions, b.i1)
        b.branch(condition, [], m.store)
    made.clear()
