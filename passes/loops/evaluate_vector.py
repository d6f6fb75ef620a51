"""Evaluate tensors W elements at a time, along one loop variable.

    ev = VectorEvaluator(graph, b, buffers, ranges, status, lanes=Lanes("j", 16))
    v = ev.at(value, (i, j))            # lane k holds the element at (i, j + k): a vector, or a scalar if all are equal
    ev.store(buffer, i * n + j, v)

An address with step 1 along the lanes is a vector load, with step 0 a scalar, else one load per lane.
All lanes must be in bounds: emitters let the last block end at the last element.

Index expressions are folded before lanes are told apart, so a fold must hold for each of them: `ranges` gives the loop
variable the positions of all lanes, `0 <= j < 12`, although that of lane 0 ends earlier. With `0 <= j < 5` for 8 lanes
`j // 8` would be 0, which is wrong from lane 4 on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mlir import ir

from ...dialects import dims
from ...dialects.dims import Dim, Expr
from .evaluate import Evaluator
from .evaluate_walk import Index
from .index_algebra import Ranges
from .loop_nest import Loop
from .loops_builder import LoopsBuilder
from .order_keys import combine_keys
from .tensor_graph import BodyOp, Generic, TensorGraph


@dataclass
class Lanes:
    """`width` consecutive values of loop variable `name`."""

    name: str
    width: int


class VectorEvaluator(Evaluator):
    """An Evaluator whose values are vectors along `lanes` wherever they differ between lanes."""

    def __init__(
        self,
        graph: TensorGraph,
        b: LoopsBuilder,
        buffers: Mapping[ir.Value, ir.Value],
        ranges: Ranges,
        status: ir.Value | None = None,
        *,
        lanes: Lanes,
    ):
        super().__init__(graph, b, buffers, ranges, status)
        self.lanes = lanes
        self.row_width = lanes.width
        self.sum_block = 32  # each lane is one sum
        self.vector_symbols: dict[str, ir.Value] = {}

    # -- values ----------------------------------------------------------------------------------------------------
    def vector(self, value: ir.Value) -> ir.Value:
        """`value` as a vector of all lanes."""
        if isinstance(value.type, ir.VectorType):
            return value
        type = ir.VectorType.get([self.lanes.width], value.type)
        return self.b.value("vector.broadcast", (value,), type)

    def varies(self, expression: Dim) -> bool:
        """True if `expression` differs between lanes."""
        return isinstance(expression, Expr) and any(
            n == self.lanes.name or n in self.vector_symbols for n in dims.symbols(expression)
        )

    def _step(self, expression: Dim) -> Dim | None:
        """The difference of `expression` from lane to lane, or None."""
        if isinstance(expression, Expr) and dims.symbols(expression) & self.vector_symbols.keys():
            return None
        return dims.linear_coefficient(expression, self.lanes.name)

    def lane(self, expression: Dim, k: int) -> Dim:
        """`expression` for lane `k`."""
        if not self.varies(expression):
            return expression
        values: dict[str, Dim] = {}
        names = dims.symbols(expression)
        if self.lanes.name in names:
            values[self.lanes.name] = dims.symbol(self.lanes.name) + k
        for name in names & self.vector_symbols.keys():
            values[name] = self.b.bind_fresh(self.b.extract(self.vector_symbols[name], k))
        return self._of_lane_0().simplify(dims.substitute(expression, values))

    def _of_lane_0(self) -> Ranges:
        """The ranges for expressions in which the loop variable is lane 0's position alone."""
        ranges = self.ranges.copy()
        ranges.add(self.lanes.name, ranges.ends[self.lanes.name] - (self.lanes.width - 1))
        return ranges

    # -- hooks of the walk -----------------------------------------------------------------------------------------
    def load_at(self, buffer: ir.Value, offset: Dim) -> ir.Value:
        step = self._step(offset)
        if step == 0:
            return super().load_at(buffer, offset)
        element = ir.MemRefType(buffer.type).element_type
        type = ir.VectorType.get([self.lanes.width], element)
        if step == 1:
            return self.b.value("vector.load", (buffer, self.b.dim(offset)), type)
        loads = [super(VectorEvaluator, self).load_at(buffer, self.lane(offset, k)) for k in range(self.lanes.width)]
        return self.b.value("vector.from_elements", loads, type)

    def apply(self, op: BodyOp, operands: list[Any]) -> list[Any]:
        if not any(isinstance(x.type, ir.VectorType) for x in operands):
            return super().apply(op, operands)
        if op.results and op.results[0] in self.ordered:
            return [combine_keys(self.b, op.name, *(self.vector(x) for x in operands))]
        types = [ir.VectorType.get([self.lanes.width], r.type) for r in op.results]
        return self.emit(op, [self.vector(x) for x in operands], types)

    def index_value(self, expression: Dim) -> Any:
        if not self.varies(expression):
            return super().index_value(expression)
        b, width = self.b, self.lanes.width
        type = ir.VectorType.get([width], b.index)
        step = self._step(expression)
        if step is None:
            return b.value("vector.from_elements", [b.dim(self.lane(expression, k)) for k in range(width)], type)
        iota = b.value("vector.step", (), type)
        scaled = b.value("arith.muli", (iota, self.vector(b.dim(step))), type) if step != 1 else iota
        return b.value("arith.addi", (self.vector(b.dim(expression)), scaled), type)

    def index_symbol(self, value: Any) -> Dim:
        symbol = super().index_symbol(value)
        if isinstance(value.type, ir.VectorType):
            self.vector_symbols[str(symbol)] = value
        return symbol

    def check(self, ok: Any, message: str) -> None:
        if isinstance(ok.type, ir.VectorType):
            ok = self.b.value("vector.reduction", (ok,), self.b.i1, kind=self.b.attribute("#vector.kind<and>"))
        super().check(ok, message)

    def choose(
        self, conditions: list[Dim], yes: Callable[[], Any], no: Callable[[], Any], value: ir.Value, at: Index
    ) -> Any:
        element = ir.RankedTensorType(value.type).element_type
        type = ir.VectorType.get([self.lanes.width], element)
        if not any(self.varies(c) for c in conditions):
            branches = (lambda: [self.vector(yes())], lambda: [self.vector(no())])
            return self.b.branch(self.all_nonnegative(conditions), [type], *branches)[0]
        scalar = Evaluator(self.graph, self.b, self.buffers, self._of_lane_0(), self.status)
        lanes = [scalar.at(value, [self.lane(i, k) for i in at]) for k in range(self.lanes.width)]
        return self.b.value("vector.from_elements", lanes, type)

    def accumulate(
        self,
        generic: Generic,
        over: list[Loop],
        inits: list[Any],
        loops: Any,
        each: Callable[[], None] = lambda: None,
    ) -> list[Any]:
        return super().accumulate(generic, over, [self.vector(v) for v in inits], loops, each)

    def body(self, g: Generic, loops: Any, accumulators: Any) -> list[Any]:
        made = super().body(g, loops, accumulators)
        return made if accumulators is None else [self.vector(v) for v in made]

    # -- stores ----------------------------------------------------------------------------------------------------
    def store(self, buffer: ir.Value, offset: Dim, value: ir.Value) -> None:
        """Write the lanes of `value` to `buffer`, lane 0 at `offset`."""
        b, step = self.b, self._step(offset)
        vector = self.vector(value)
        if step == 1:
            b.op("vector.store", (vector, buffer, b.dim(offset)))
            return
        for k in range(self.lanes.width):
            b.op("memref.store", (b.extract(vector, k), buffer, b.dim(self.lane(offset, k))))

    def store_row(self, scratch: ir.Value, position: Dim, value: ir.Value) -> None:
        self.b.op("vector.store", (self.vector(value), scratch, self.b.dim(position * self.row_width)))

    def load_row(self, scratch: ir.Value, position: Dim) -> ir.Value:
        type = ir.VectorType.get([self.row_width], ir.MemRefType(scratch.type).element_type)
        if self.varies(position):
            places = [self.lane(position, k) * self.row_width + k for k in range(self.row_width)]
            loads = [super(VectorEvaluator, self).load_at(scratch, p) for p in places]
            return self.b.value("vector.from_elements", loads, type)
        return self.b.value("vector.load", (scratch, self.b.dim(position * self.row_width)), type)
