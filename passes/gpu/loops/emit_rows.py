"""Stages that take one row at a time: softmax, layer norm, sums along the last dimensions.

row r = block * rows_per_block + thread / threads
<reductions along the row, by the row's threads>            RowValues
store the row's own results, and the elements of those that have the row's length
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from mlir import ir

from ....dialects import dims
from ....dialects.dims import Dim
from ...loops.evaluate import Evaluator
from ...loops.evaluate_walk import Index
from ...loops.index_algebra import Ranges
from ...loops.tensor_graph import Generic, TensorGraph
from ..gpu_kernel import GpuKernel, element_bytes
from ..hopper.first_rows import MOST, MOST_REDUCED, are_large, fetch_first_rows
from ..lane_places import LANE, divisible
from ..probe import Probe, choose_width
from ..streamed_loads import StreamedLoads
from ..thread_values import ThreadValues, Together
from .joint_reductions import joint_of
from .online_sums import OnlineSum, find_online
from .row_plan import REGISTER_ROW, RowForm, RowPlan, place, rows_per_block, threads_for
from .row_search import is_searched
from .row_values import Piece, Row
from .shifted_rows import ShiftedRow
from .stored import Stored

SHIFTED_ROW = 256  # the shortest row of which a thread's element beside its vectors is little
AHEAD = 64  # registers of a thread for what is loaded before the first reduction
OWN_AHEAD = 4  # elements that a row's own results need, which are loaded then, too
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
    return [a for a in own if are_large(ir.RankedTensorType(a.type).element_type, dims.product(graph.shape(a)))]


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
    Nor where much lies otherwise (two weights of f32): what is read shifted costs about as much as two whole vectors.
    """
    if any(not is_searched(joint) for joint in plan.joints(graph) if len(joint.results) > len(joint.generics)):
        return None
    width = row_width(graph, stored, plan, shifted=True)
    otherwise = _others(_probe(graph, stored, plan, width, shifted=True), plan.length, width)
    arms = otherwise >= MANY_OTHERS and isinstance(plan.length, int)
    return RowForm(plan, graph, width, True, arms) if width > 2 * max(1, otherwise) * whole else None


def _others(probe: Probe, length: Dim, width: int) -> int:
    """How many loads of vectors are at other places in those than the row's own elements."""
    begins = {"c": width * dims.symbol("w") - length * dims.symbol("r")}
    firsts = {(a, dims.substitute(o, {**begins, LANE: 0})) for a, o in probe.loads if LANE in dims.symbols(o)}
    return sum(not divisible(first, width) for _, first in firsts)


def _emit_row(plan: RowPlan, ev: ThreadValues, row: Row, r: Dim, inside: ir.Value | None) -> None:
    """Write the results of row `r`."""
    graph, stage = ev.graph, ev.stage
    for keys in plan.passes:
        ev.together.update(dict.fromkeys(keys, _in_one_pass(ev, row, keys)))
    if row.unroll and not plan.full:
        for pair in find_online(graph, stage.kernel.rough, plan.passes):
            ev.together.update(dict.fromkeys(pair.keys, _online(ev, row, pair)))
    if plan.keys and _load_ahead(ev, plan, row, r) and isinstance(row, ShiftedRow):
        row.arms = False  # all that they would read is there
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


def _in_one_pass(ev: ThreadValues, row: Row, keys: Sequence[ir.Value]) -> Together:
    """What gives the results of each of these reductions, and does all when it is asked for the first."""
    joint = joint_of(ev.graph, keys)
    made: dict[tuple[Dim, ...], list[ir.Value]] = {}

    def reduce(generic: Generic, index: Index) -> list[ir.Value]:
        at = tuple(generic.loops_of(index))
        if at not in made:
            made[at] = row.reduce(ev, joint, at)
        return joint.of(generic, made[at])

    return reduce


def _online(ev: ThreadValues, row: Row, pair: OnlineSum) -> Together:
    """What gives a row's maximum or the sum of exponentials below it, and does both when it is asked for one."""
    made: dict[tuple[Dim, ...], list[ir.Value]] = {}

    def reduce(generic: Generic, index: Index) -> list[ir.Value]:
        at = tuple(generic.loops_of(index))
        if at not in made:
            made[at] = pair.reduce(row, ev, at)
        return [made[at][pair.keys.index(generic.arguments[-1])]]

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
    _read_own(accesses, plan, dims.symbol("r"))
    return accesses


def _load_ahead(ev: ThreadValues, plan: RowPlan, row: Row, r: Dim) -> bool:
    """Load what the stores need, too, before the first reduction: nothing moves up across its barrier by itself.

    Not where that takes too many registers; returns whether it is loaded.
    """
    graph = ev.graph
    ahead: dict[tuple[ir.Value, Dim], None] = {}
    for name in row.names:
        column = row.column(ev, name)
        probe = Probe(graph, ev.ranges, set(), column)
        probe.only = set(plan.keys)
        flat = plan.flat(ev.ranges, r, column)
        for i in plan.full:
            probe.at(graph.results[i], ev.ranges.delinearize(flat, graph.shape(graph.results[i])))
        known = {"r", LANE, name}
        ahead.update({(a, o): None for a, o in probe.loads if a in graph.inputs and set(dims.symbols(o)) <= known})
    sizes = [element_bytes(ir.RankedTensorType(a.type).element_type) for a, _ in ahead]
    registers = AHEAD // 2 if isinstance(row, ShiftedRow) else AHEAD  # shifts take some, too
    fits = sum(sizes) * ev.width <= 4 * registers
    if fits:
        ev.stage.coherent = True  # ptxas lets loads of constants sink
        for argument, offset in ahead:
            ev.load(argument, offset)
    own = _own_loads(ev, plan, row, r)
    if own and len(own) <= OWN_AHEAD:
        _load_here(ev, own, ev.b.compare("ult", r, plan.count))
    if isinstance(row, ShiftedRow) and not plan.full:
        single = row.element()
        beside = _element_loads(single, plan, r)
        if beside and len(beside) <= OWN_AHEAD:
            _load_here(single.values, beside, single.mask)
    return fits


def _load_here(ev: ThreadValues, loads: list[tuple[ir.Value, Dim]], condition: ir.Value | None) -> None:
    """Load single elements in a branch: ptxas moves a load down to where it is used, but out of no branch.

    What each row has one of would come a memory's latency after the row otherwise.
    """
    b = ev.b
    types = [ir.MemRefType(ev.buffers[a].type).element_type for a, _ in loads]
    makes = [partial(Evaluator.load_at, ev, ev.buffers[a], o) for a, o in loads]
    assert condition is not None
    made = b.branch(condition, types, lambda: [m() for m in makes], lambda: [b.constant(0, t) for t in types])
    for (argument, offset), value in zip(loads, made):
        ev.remember(("load", argument), (offset,), partial(_same, value))


def _same(value: ir.Value) -> ir.Value:
    return value


def _element_loads(single: Piece, plan: RowPlan, r: Dim) -> list[tuple[ir.Value, Dim]]:
    """What a thread's element beside the vectors needs of inputs, at places that need no other load."""
    graph, ranges = single.values.graph, single.values.ranges
    probe = Probe(graph, ranges, set(), single.column)
    probe.only = set(plan.keys)
    flat = plan.flat(ranges, r, single.column)
    for i in plan.full:
        probe.at(graph.results[i], ranges.delinearize(flat, graph.shape(graph.results[i])))
    _read_own(probe, plan, r)
    known, own = {"r", "e"}, dims.symbols(single.column)
    loads = (l for l in probe.loads if l[0] in graph.inputs)
    return list(dict.fromkeys(l for l in loads if own <= set(dims.symbols(l[1])) <= known))


def _own_loads(ev: ThreadValues, plan: RowPlan, row: Row, r: Dim) -> list[tuple[ir.Value, Dim]]:
    """What results of one element need of inputs, at places that need no other load: the class whose loss a row is."""
    if not row.names:
        return []
    probe = Probe(ev.graph, ev.ranges, set(), row.column(ev, row.names[0]))
    probe.only = set(plan.keys)
    _read_own(probe, plan, r)
    return list(dict.fromkeys(l for l in probe.loads if l[0] in ev.graph.inputs and set(dims.symbols(l[1])) == {"r"}))


def _read_own(probe: Probe, plan: RowPlan, r: Dim) -> None:
    """Let `probe` note what the results of one element of row `r` read."""
    for i in plan.rows:
        value = probe.graph.results[i]
        probe.at(value, probe.ranges.delinearize(r, probe.graph.shape(value)))


def _force(ev: ThreadValues, plan: RowPlan, r: Dim, row: Row) -> None:
    """Do the reductions first, where all threads run: none may begin inside a branch or loop."""
    probe = Probe(ev.graph, ev.ranges.copy(), set(), 0)
    probe.only = set(plan.keys)
    if row.names:
        flat = plan.flat(probe.ranges, r, row.column(ev, row.names[0]))
        for i in plan.full:
            value = probe.graph.results[i]
            probe.at(value, probe.ranges.delinearize(flat, probe.graph.shape(value)))
    _read_own(probe, plan, r)
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
        m.values.b.under((m.mask, inside), m.store)
    made.clear()
