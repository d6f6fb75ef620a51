"""Note where an element's value is read from, without emitting code: what loop structures are chosen by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mlir import ir

from ...dialects import dims
from ...dialects.dims import Dim
from .evaluate_walk import Index, Walk
from .index_algebra import Ranges
from .tensor_graph import BodyOp, Generic, TensorGraph

TOKEN = object()  # stands for any scalar


@dataclass
class Reduction:
    """A reduction met on the walk: `names` gives the variable of each of its reduced loops."""

    generic: Generic
    index: Index
    names: dict[int, str]


class Accesses(Walk):
    """The loads of everything evaluated so far: `loads` as (argument, offset), `positions` as index values used.

    `operations` counts scalar ops and `functions` those of the math dialect: the work of one element.
    """

    def __init__(self, graph: TensorGraph, ranges: Ranges):
        super().__init__(graph, ranges)
        self.loads: list[tuple[ir.Value, Dim]] = []
        self.positions: list[Dim] = []
        self.reductions: list[Reduction] = []
        self.operations = 0
        self.functions = 0
        self.checks = False
        self.conditions: list[Dim] = []  # what decides between two tensors that an element comes from
        self.generics: dict[tuple[ir.Value, Index], Generic] = {}  # bodies inlined, by last argument and index
        self._memo: dict[Any, Any] = {}
        self._fresh = 0

    @property
    def branches(self) -> bool:
        """True if there are places where an element comes from one of two tensors."""
        return bool(self.conditions)

    def expressions(self) -> list[Dim]:
        """All index expressions that decide addresses or values."""
        return [offset for _, offset in self.loads] + self.positions

    def remember(self, key: Any, index: Index, make: Callable[[], Any]) -> Any:
        full = (key, index)
        if full not in self._memo:
            self._memo[full] = make()
        return self._memo[full]

    def load(self, argument: ir.Value, offset: Dim) -> Any:
        self.loads.append((argument, offset))
        return TOKEN

    def scalar(self, value: ir.Value) -> Any:
        return TOKEN

    def literal(self, value: ir.Value, index: Index) -> Any:
        self.positions.append(self.ranges.linearize(index, self.graph.shape(value)))
        return TOKEN

    def empty(self, type: ir.Type) -> Any:
        return TOKEN

    def apply(self, op: BodyOp, operands: list[Any]) -> list[Any]:
        self.operations += 1
        self.functions += op.name.startswith("math.") and op.name not in ("math.absf", "math.sqrt", "math.fma")
        return [TOKEN] * len(op.results)

    def index_value(self, expression: Dim) -> Any:
        self.positions.append(expression)
        return TOKEN

    def index_symbol(self, value: Any) -> Dim:
        self._fresh += 1
        return dims.symbol(f"v_{self._fresh}")

    def check(self, ok: Any, message: str) -> None:
        self.checks = True

    def choose(
        self, conditions: list[Dim], yes: Callable[[], Any], no: Callable[[], Any], value: ir.Value, at: Index
    ) -> Any:
        self.positions += conditions
        self.conditions += conditions
        yes()
        no()
        return TOKEN

    def body(self, g: Generic, loops: Any, accumulators: Any) -> list[Any]:
        if accumulators is None:
            self.generics[g.arguments[-1], tuple(loops)] = g
        return super().body(g, loops, accumulators)

    def reduce(self, generic: Generic, index: Index) -> list[Any]:
        for out in generic.outs:
            self.at(out, index)
        loops = generic.loops_of(index)
        names = {}
        for d in generic.reductions:
            self._fresh += 1
            names[d] = f"q{self._fresh}"
            loops[d] = self.ranges.add(names[d], generic.extents[d])
        self.reductions.append(Reduction(generic, index, names))
        return self.body(generic, loops, [TOKEN] * len(generic.outs))
