"""What a thread loads before the first reduction of a row: nothing moves up across its barrier by itself."""

from __future__ import annotations

from functools import partial

from mlir import ir

from ....dialects import dims
from ....dialects.dims import Dim
from ...loops.evaluate import Evaluator
from ..gpu_kernel import element_bytes
from ..lane_places import LANE
from ..thread_values import ThreadValues
from .row_accesses import RowAccesses
from .row_plan import RowPlan
from .row_values import Row
from .shifted_rows import ShiftedRow

AHEAD = 64  # registers of a thread for it
OWN_AHEAD = 4  # elements that a row's own results need, which are loaded then, too


def load_ahead(ev: ThreadValues, plan: RowPlan, row: Row, r: Dim) -> bool:
    """Load what the stores of row `r` need, too, before its first reduction.

    Not where that takes too many registers; returns whether it is loaded.
    """
    ahead: dict[tuple[ir.Value, Dim], None] = {}
    for name in row.names:
        column = row.column(ev, name)
        accesses = RowAccesses(plan, ev.graph, ev.ranges, column)
        accesses.read_full(r, column)
        known = {"r", LANE, name}
        ahead.update({(a, o): None for a, o in _input_loads(accesses) if set(dims.symbols(o)) <= known})
    sizes = [element_bytes(ir.RankedTensorType(a.type).element_type) for a, _ in ahead]
    registers = AHEAD // 2 if isinstance(row, ShiftedRow) else AHEAD  # shifts take some, too
    fits = sum(sizes) * ev.width <= 4 * registers
    if fits:
        ev.stage.coherent = True  # ptxas lets loads of constants sink
        for argument, offset in ahead:
            ev.load(argument, offset)
    own = own_loads(ev, plan, row, r)
    if 0 < len(own) <= OWN_AHEAD:
        _load_here(ev, own, ev.b.compare("ult", r, plan.count))
    if isinstance(row, ShiftedRow) and not plan.full:
        single = row.element()
        values, column = single.values, single.column
        beside = _single_loads(RowAccesses(plan, values.graph, values.ranges, column), r, {"e"}, {"r", "e"})
        if 0 < len(beside) <= OWN_AHEAD:
            _load_here(values, beside, single.mask)
    return fits


def load_row(ev: ThreadValues, plan: RowPlan, row: Row, r: Dim) -> None:
    """Load the vectors of row `r` that its reductions read."""
    for name in row.names:
        accesses = RowAccesses(plan, ev.graph, ev.ranges, row.column(ev, name))
        accesses.read_own(r)
        for argument, offset in dict.fromkeys(_input_loads(accesses)):
            symbols = set(dims.symbols(offset))
            if symbols <= {"r", LANE, name} and symbols & {LANE, name}:
                ev.load(argument, offset)


def own_loads(ev: ThreadValues, plan: RowPlan, row: Row, r: Dim) -> list[tuple[ir.Value, Dim]]:
    """What a row has one of: the class whose loss it is."""
    if not row.names:
        return []
    return _single_loads(RowAccesses(plan, ev.graph, ev.ranges, row.column(ev, row.names[0])), r, {"r"}, {"r"})


def _single_loads(accesses: RowAccesses, r: Dim, least: set[str], most: set[str]) -> list[tuple[ir.Value, Dim]]:
    """What the results of one element of row `r` need of inputs, at places that need no other load: of these symbols."""
    accesses.read_own(r)
    return list(dict.fromkeys(l for l in _input_loads(accesses) if least <= set(dims.symbols(l[1])) <= most))


def _input_loads(accesses: RowAccesses) -> list[tuple[ir.Value, Dim]]:
    return [l for l in accesses.loads if l[0] in accesses.graph.inputs]


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
        ev.remember(("load", argument), (offset,), lambda value=value: value)
