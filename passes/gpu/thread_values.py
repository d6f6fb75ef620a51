"""Evaluate tensors in one thread of a GPU: `width` neighbouring elements at a time, or one.

Positions are written over two symbols, `V * w + lane` with `0 <= lane < V`, so that the index algebra sees which parts
of an address are the same for all lanes: `floordiv(V * w + lane, 768)` is `floordiv(w, 96)` for V = 8. An address with
step 1 in `lane` is one load of V elements; it is as aligned as the rest of the address is divisible by V.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from mlir import ir

from ...dialects import dims
from ...dialects.dims import Dim
from ...dialects.status import code_of
from ..loops.evaluate import Evaluator
from ..loops.evaluate_vector import Lanes
from ..loops.evaluate_walk import Index
from ..loops.index_algebra import Ranges
from ..loops.literal_table import literal_table, table_type
from ..loops.loop_nest import Loop
from ..loops.loops_builder import LoopsBuilder
from ..loops.reduction_loops import accumulator_kinds, reduction_loops
from ..loops.tensor_graph import Generic, TensorGraph
from .gpu_kernel import GpuStage, element_bytes
from .lane_places import LANE, LOAD_BYTES, divisible, shared_place, whole_load
from .machine_functions import MachineFunctions, sums_of
from .streamed_loads import StreamedLoads
from .unaligned_loads import MANY_PARTS, can_load, unaligned_load

NEVER = 1 << 62  # terms after which an f32 sum goes to f64: threads add few
AT_ONCE = 8  # steps of a thread's own reduction whose loads are under way together
MAX_LITERAL = 1 << 14  # elements of a dense constant in the code

# reduce(generic, index) -> the results of a reduction that threads do together
Together = Callable[[Generic, Index], list[Any]]


def store_failure(b: LoopsBuilder, status: ir.Value, ok: ir.Value, code: int) -> None:
    """`if not ok: status = code`. Threads share the status: what one wrote is not read and written again by others."""

    def store() -> list[ir.Value]:
        b.op("memref.store", (b.constant(code, b.i32), status, b.dim(0)))
        return []

    b.branch(b.value("arith.xori", (ok, b.constant(1, b.i1)), b.i1), [], store)


class ThreadValues(MachineFunctions):
    """The evaluator of a stage. `together` holds the reductions that the block does, by their last argument.

    `graph` is the kernel's, of which more may be known where it is evaluated.
    """

    def __init__(self, stage: GpuStage, ranges: Ranges, width: int, graph: TensorGraph | None = None):
        super().__init__(stage, graph or stage.kernel.graph, ranges, Lanes(LANE, width))
        self.width = width
        self.streamed: StreamedLoads | None = None
        self.sum_block = NEVER
        self.together: dict[ir.Value, Together] = {}
        self.begins: dict[str, Dim] = {}  # symbols of which more is known: what shows what they make aligned
        self.begins_here: dict[str, Dim] = {}  # the same, in the branch that is being written
        if LANE not in stage.b.symbols:
            with stage.b.at_level(0):
                stage.b.bind(LANE, stage.b.constant(0, stage.b.index))
        if width > 1:
            ranges.add(LANE, width)

    def flat(self, position: Dim) -> Dim:
        """The first element of vector `position`, plus the lane."""
        return self.width * position + dims.symbol(LANE) if self.width > 1 else position

    # -- lanes -----------------------------------------------------------------------------------------------------
    def vector(self, value: ir.Value) -> ir.Value:
        return value if self.width == 1 else super().vector(value)

    def varies(self, expression: Dim) -> bool:
        return self.width > 1 and super().varies(expression)

    def _step(self, expression: Dim) -> Dim | None:
        return 0 if self.width == 1 else super()._step(expression)

    def lane(self, expression: Dim, k: int) -> Dim:
        if not self.varies(expression):
            return expression
        values: dict[str, Dim] = {LANE: k}
        for name in dims.symbols(expression) & self.vector_symbols.keys():
            values[name] = self.b.bind_fresh(self.b.extract(self.vector_symbols[name], k))
        return self.ranges.simplify(dims.substitute(expression, values))

    def across_lanes(
        self, values: Sequence[Any], combine: Callable[[Sequence[Any], Sequence[Any]], list[Any]]
    ) -> list[Any]:
        """The lanes of vectors combined, neighbours first."""
        if not any(isinstance(v.type, ir.VectorType) for v in values):
            return list(values)
        parts = [[self.b.extract(v, k) for v in values] for k in range(self.width)]
        while len(parts) > 1:
            parts = [combine(x, y) for x, y in zip(parts[::2], parts[1::2])]
        return parts[0]

    # -- memory ----------------------------------------------------------------------------------------------------
    def load_at(self, buffer: ir.Value, offset: Dim) -> ir.Value:
        element = ir.MemRefType(buffer.type).element_type
        if not self.varies(offset):
            if self.width == 1 and self.streamed is not None and self.streamed.takes(buffer, 1, element_bytes(element)):
                return self.streamed.load(buffer, self.b.dim(offset), 1)
            return Evaluator.load_at(self, buffer, offset)
        step = self._step(offset)
        if step != 1:
            lanes = whole_load(element, ir.MemRefType(buffer.type).shape[0])
            near = abs(step) < lanes if isinstance(step, int) else not dims.symbols(offset) & self.vector_symbols.keys()
            if not near:
                return super().load_at(buffer, offset)
            loads = [self._load_lane(buffer, self.lane(offset, k), lanes) for k in range(self.width)]
            return self.b.value("vector.from_elements", loads, ir.VectorType.get([self.width], element))
        type, alignment = ir.VectorType.get([self.width], element), self._alignment(offset, element)
        count = self._count(buffer) if self._in_many_parts(element, alignment.value) else None
        if count is not None and can_load(buffer, count, self.width):
            lanes = whole_load(element, self.width)
            place = self._place(offset, lanes)
            within = isinstance(count, int) and self._is_within(offset, count - lanes, place, lanes)
            load = self._aligned_load(buffer)
            return unaligned_load(self.b, buffer, count, self.b.dim(offset), self.width, within, load, place)
        if self.streamed is not None and self.streamed.takes(buffer, self.width, alignment.value):
            return self.streamed.load(buffer, self.b.dim(offset), self.width)
        return self.b.value("vector.load", (buffer, self.b.dim(offset)), type, alignment=alignment)

    def _load_lane(self, buffer: ir.Value, offset: Dim, lanes: int) -> ir.Value:
        """One lane's element, out of the load of up to `lanes` elements in which it lies where that is known: others do, too."""
        element, found = ir.MemRefType(buffer.type).element_type, shared_place(offset, lanes)
        if found is None:
            return Evaluator.load_at(self, buffer, offset)
        first, place, size = found

        def load() -> ir.Value:
            alignment = ir.IntegerAttr.get(self.b.i64, size * element_bytes(element))
            vector = ir.VectorType.get([size], element)
            return self.b.value("vector.load", (buffer, self.b.dim(first)), vector, alignment=alignment)

        loaded = self.remember(("whole load", buffer, size), (first,), load)
        return self.b.extract(loaded, place)

    def store(self, buffer: ir.Value, offset: Dim, value: ir.Value) -> None:
        b = self.b
        if not self.varies(offset):
            if isinstance(value.type, ir.VectorType):  # all lanes are equal
                value = b.extract(value, 0)
            b.op("memref.store", (value, buffer, b.dim(offset)))
            return
        if self._step(offset) != 1:
            super().store(buffer, offset, value)
            return
        element = ir.MemRefType(buffer.type).element_type
        attributes = {"alignment": self._alignment(offset, element)}
        b.op("vector.store", (self.vector(value), buffer, b.dim(offset)), attributes=attributes)

    def _count(self, buffer: ir.Value) -> Dim | None:
        """The elements of an input's buffer; None for other buffers."""
        found = (dims.product(self.graph.shape(v)) for v, input in self.stage.inputs.items() if input == buffer)
        return next(found, None)

    def _in_many_parts(self, element: ir.Type, alignment: int) -> bool:
        """True for vectors that the machine would load in many parts."""
        return self.stage.kernel.aligned and self.width * element_bytes(element) // alignment >= MANY_PARTS

    def _is_within(self, offset: Dim, end: int, place: int | None, lanes: int) -> bool:
        """True if all lanes of a vector, which begins at `place` of `lanes` where known, are at elements before `end` for certain."""
        most = self.ranges.lower(offset, upper=True)
        if isinstance(most, int) and place is not None:
            first = most - (self.width - 1)
            most -= place + (first - place) % lanes
        return isinstance(most, int) and most < end

    def _firsts(self, offset: Dim) -> list[Dim]:
        """What is known of the element of a vector's first lane."""
        first = offset - dims.symbol(LANE)
        return [dims.substitute(first, known) for known in (self.begins, self.begins_here)]

    def _place(self, offset: Dim, lanes: int) -> int | None:
        """The place of a vector's first lane in an aligned load of `lanes` elements, where it is known."""
        places = (dims.mod(first, lanes) for first in self._firsts(offset))
        return next((p for p in places if isinstance(p, int)), None)

    def _aligned_load(self, buffer: ir.Value) -> Callable[[ir.Value], ir.Value] | None:
        """How to load an aligned vector of which neighbours need a part, too; None: as always."""
        lanes = LOAD_BYTES // element_bytes(ir.MemRefType(buffer.type).element_type)
        if self.streamed is None or not self.streamed.takes(buffer, lanes, LOAD_BYTES):
            return None
        return partial(self.streamed.load, buffer, width=lanes, once=False)

    def _alignment(self, offset: Dim, element: ir.Type) -> ir.IntegerAttr:
        """In bytes, of the vector whose first lane is at `offset`."""
        width, firsts = self.width, self._firsts(offset)
        while width > 1 and not any(divisible(first, width) for first in firsts):
            width //= 2
        return ir.IntegerAttr.get(self.b.i64, width * element_bytes(element))

    def _table(self, value: ir.Value) -> ir.Value:
        def make() -> ir.Value:
            op, kernel = self.graph.owner(value), self.stage.kernel
            assert op is not None
            name = f"table{len(list(kernel.block.operations))}"
            at = ir.InsertionPoint.at_block_begin(kernel.block)
            type = table_type(literal_table(op, name, at, MAX_LITERAL, kernel._space))
            return self.b.op("memref.get_global", (), [type], {"name": ir.FlatSymbolRefAttr.get(name)}).result

        return self.remember(("table", value), (), make)

    # -- ops -------------------------------------------------------------------------------------------------------
    def index_value(self, expression: Dim) -> Any:
        if not self.varies(expression):
            return Evaluator.index_value(self, expression)
        b, type = self.b, ir.VectorType.get([self.width], self.b.index)
        step = self._step(expression)
        if step is None or not isinstance(step, int):
            lanes = [b.dim(self.lane(expression, k)) for k in range(self.width)]
            return b.value("vector.from_elements", lanes, type)
        steps = b.attribute(f"dense<{[step * k for k in range(self.width)]}> : {type}")
        return b.value(
            "arith.addi", (self.vector(b.dim(expression)), b.value("arith.constant", (), type, value=steps)), type
        )

    def check(self, ok: Any, message: str) -> None:
        b = self.b
        if isinstance(ok.type, ir.VectorType):
            ok = b.value("vector.reduction", (ok,), b.i1, kind=b.attribute("#vector.kind<and>"))
        assert self.status is not None
        store_failure(b, self.status, ok, code_of(message))

    def choose(
        self, conditions: list[Dim], yes: Callable[[], Any], no: Callable[[], Any], value: ir.Value, at: Index
    ) -> Any:
        element = ir.RankedTensorType(value.type).element_type
        if self.width == 1:
            return Evaluator.choose(self, conditions, yes, no, value, at)
        if all(self._uniform(c) for c in conditions):
            type = ir.VectorType.get([self.width], element)
            first = [dims.substitute(c, {LANE: 0}) for c in conditions]
            branches = (lambda: [self.vector(yes())], lambda: [self.vector(no())])
            return self.b.branch(self.all_nonnegative(first), [type], *branches)[0]
        one = LaneValues(self)
        lanes = [one.at(value, [self.lane(i, k) for i in at]) for k in range(self.width)]
        return self.b.value("vector.from_elements", lanes, ir.VectorType.get([self.width], element))

    def _uniform(self, condition: Dim) -> bool:
        """True if `condition >= 0` holds for all lanes or none."""
        if not self.varies(condition):
            return True
        step = self._step(condition)
        if step not in (1, -1):
            return False
        first = dims.substitute(condition, {LANE: 0})
        return divisible(first if step == 1 else first + 1, self.width)

    # -- reductions ------------------------------------------------------------------------------------------------
    def reduce(self, generic: Generic, index: Index) -> list[Any]:
        together = self.together.get(generic.arguments[-1])
        return together(generic, index) if together else super().reduce(generic, index)

    def accumulate(
        self,
        generic: Generic,
        over: list[Loop],
        inits: list[Any],
        loops: Sequence[Dim],
        each: Callable[[], None] = lambda: None,
    ) -> list[Any]:
        def body(carried: list[Any]) -> list[Any]:
            return self.body(generic, loops, carried)

        self.sums |= sums_of(generic)
        starts = [self.vector(v) for v in inits]
        extent = over[0].extent if len(over) == 1 else 0
        if not isinstance(extent, int) or extent <= AT_ONCE or extent % AT_ONCE:
            return reduction_loops(self.b, over, starts, accumulator_kinds(generic), body, NEVER)

        def several(at: Dim, carried: list[Any]) -> list[Any]:
            for u in range(AT_ONCE):
                carried = self.body(generic, [dims.substitute(i, {over[0].name: at + u}) for i in loops], carried)
            return carried

        return self.b.loop_carried(over[0].name, 0, extent, starts, several, AT_ONCE)


class LaneValues(ThreadValues):
    """The evaluator of one lane of `wide` at a time, for values that lanes have from one tensor or another."""

    def __init__(self, wide: ThreadValues):
        super().__init__(wide.stage, wide.ranges, 1, wide.graph)
        self.known, self.together, self._wide = wide.known, wide.together, wide

    def load_at(self, buffer: ir.Value, offset: Dim) -> ir.Value:
        """An element, out of a load that lanes share where there is one."""
        type = ir.MemRefType(buffer.type)
        return self._wide._load_lane(buffer, offset, whole_load(type.element_type, type.shape[0]))
