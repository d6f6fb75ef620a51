"""What a stage of rows loads before its first reduction, across whose barriers no load moves up by itself.

That is, of what is stored, the elements of whole rows (`load_ahead`: the weights of a norm) and what a row has one of (`EarlyValues`:
the logit of a target, in which two loads wait for each other).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from mlir import ir

from ....dialects import dims
from ....dialects.dims import Dim
from ...loops.evaluate_accesses import TOKEN, Accesses
from ...loops.evaluate_walk import Index
from ...loops.index_algebra import Ranges
from ...loops.tensor_graph import Generic, TensorGraph
from ..gpu_kernel import element_bytes
from ..lane_places import LANE
from ..probe import Probe
from ..thread_values import ThreadValues
from .row_values import Row
from .shifted_rows import ShiftedRow

if TYPE_CHECKING:
    from .row_plan import RowPlan

AHEAD = 64  # registers of a thread for what is loaded before the first reduction


def load_ahead(ev: ThreadValues, plan: RowPlan, row: Row, r: Dim, several: bool) -> None:
    """Load what the reductions of row `r` and the stores of its elements need; `several`: what rows share is kept for others."""
    graph = ev.graph
    ahead: dict[tuple[ThreadValues, ir.Value, Dim], None] = {}
    for piece in row.pieces(ev):
        values = piece.values
        if values is not ev and not several:
            continue  # elements beside vectors: few, and registers are for those
        probe = Probe(graph, values.ranges, set(), piece.column)
        probe.only = set(plan.keys)
        flat = plan.flat(values.ranges, r, piece.column)
        for i in plan.full:
            probe.at(graph.results[i], values.ranges.delinearize(flat, graph.shape(graph.results[i])))
        plan.visit(probe, r)
        known = dims.symbols(r) | dims.symbols(piece.column) | {LANE}
        loads = ((a, o) for a, o in probe.loads if a in graph.inputs and dims.symbols(o) <= known)
        ahead.update({(values, a, o): None for a, o in loads if dims.symbols(o) & dims.symbols(piece.column)})
    sizes = [element_bytes(ir.RankedTensorType(a.type).element_type) * values.width for values, a, _ in ahead]
    shifted = isinstance(row, ShiftedRow) and not several  # shifts take registers, too
    if sum(sizes) <= 4 * (AHEAD // 2 if shifted else AHEAD):
        ev.stage.coherent = True  # ptxas lets loads of constants sink
        for values, argument, offset in ahead:
            values.load(argument, offset)


class EarlyValues:
    """What the rows have one of and no reduction of theirs is needed for, loaded by one thread of each."""

    def __init__(self, plan: RowPlan, ev: ThreadValues, rows: Sequence[tuple[Dim, ir.Value | None]]):
        self._ev = ev
        self._made: dict[ir.Value, dict[Index, ir.Value]] = {}
        found: dict[tuple[ir.Value, Index], None] = {}
        for r, _ in rows:
            walk = _Early(ev.graph, ev.ranges.copy(), set(plan.keys), set(ev.known), dims.symbols(r))
            plan.visit(walk, r)
            found.update(walk.found)
        self._wanted = list(found)

    def __bool__(self) -> bool:
        return bool(self._wanted)

    def load(self, first: ir.Value) -> None:
        """Load them where `first` holds."""
        if not self._wanted:
            return
        ev, b = self._ev, self._ev.b
        types = [ir.RankedTensorType(v.type).element_type for v, _ in self._wanted]
        made = b.branch(
            first,
            types,
            lambda: [ev.at(value, index) for value, index in self._wanted],
            lambda: [b.constant(0, t) for t in types],
        )
        for (value, index), loaded in zip(self._wanted, made):
            self._made.setdefault(value, {})[index] = loaded

    @contextmanager
    def known(self) -> Iterator[None]:
        """Let them be known to what is written where `first` holds."""
        before = dict(self._ev.known)
        self._ev.known.update({value: made.get for value, made in self._made.items()})
        yield
        self._ev.known.clear()
        self._ev.known.update(before)


class _Early(Accesses):
    """Notes the elements of inputs, and of what is found by a position that was loaded, that need no reduction in `keys`."""

    def __init__(
        self, graph: TensorGraph, ranges: Ranges, keys: set[ir.Value], stored: set[ir.Value], symbols: set[str]
    ):
        super().__init__(graph, ranges)
        self._keys, self._stored, self._symbols = keys, stored, symbols
        self._waiting: dict[ir.Value, bool] = {}
        self.found: dict[tuple[ir.Value, Index], None] = {}

    def at(self, value: ir.Value, index: Sequence[Dim]) -> Any:
        at = tuple(self.ranges.simplify(i) for i in index)
        if value in self._stored:
            return TOKEN
        if self._waits(value) or not self._is_read(value):
            return super().at(value, index)
        if all(dims.symbols(i) <= self._symbols for i in at):
            self.found[value, at] = None
        return TOKEN

    def reduce(self, generic: Generic, index: Index) -> list[Any]:
        return [TOKEN] * len(generic.outs)  # when its turn comes

    def _is_read(self, value: ir.Value) -> bool:
        """Is an element of `value` a load, perhaps of a place that is loaded?"""
        owner = self.graph.owner(value)
        return owner is None or owner.name == "linalg.generic" and bool(_extracts(self.graph.generic(value)))

    def _waits(self, value: ir.Value) -> bool:
        """Does `value` need a reduction of the rows?"""
        if value not in self._waiting:
            self._waiting[value] = self._needs(value)
        return self._waiting[value]

    def _needs(self, value: ir.Value) -> bool:
        owner = self.graph.owner(value)
        if owner is None:
            return False
        if owner.name != "linalg.generic":
            return any(self._waits(v) for v in owner.operands)
        g = self.graph.generic(value)
        return g.arguments[-1] in self._keys or any(map(self._waits, [*g.inputs, *g.outs, *_extracts(g)]))


def _extracts(generic: Generic) -> list[ir.Value]:
    """The tensors of which the body of a generic reads elements that it names."""
    return [op.operands[0] for op in generic.body if op.name == "tensor.extract"]
