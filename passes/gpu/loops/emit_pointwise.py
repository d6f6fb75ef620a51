"""Stages in which each thread computes neighbouring elements of the results by itself.

w = (block * UNROLL + u) * threads + thread         u = 0 ... UNROLL - 1
if (the last w is a whole vector)  store V lanes of every result at each V * w
else                               the same one by one: whole vectors, and the last elements

Where rows begin anywhere (an embedding of 4097 columns), V * w + lane is no expression of a row and a column that lanes
share; but most vectors lie in one row, in column `c = V * w - n * r`, and are stored whole all the same:

if (c + V <= n)                    lanes are c ... c + V - 1 of row r, which begins anywhere in an operand
else                               each lane is in a row of its own
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from mlir import ir

from ....dialects import dims
from ....dialects.dims import Dim
from ...loops.index_algebra import Ranges
from ...loops.loop_nest import Space
from ...loops.tensor_graph import TensorGraph
from ..gpu_kernel import GpuKernel
from ..lane_places import LANE
from ..probe import Probe, choose_width
from ..thread_values import ThreadValues
from ..unaligned_loads import MANY_PARTS
from .stored import Stored

THREADS = 256
ENOUGH = 1 << 16  # vectors: with fewer they are made narrower, so that all of 132 multiprocessors have several warps
UNROLL_ABOVE = 1 << 22  # elements from which a thread takes two vectors: more loads in flight
# then, and 128 threads where vectors are of rows. Those of rows that begin anywhere are one of a thread, unless they wait
# for the numbers of what they read: 8192 rows of 4097 f32 gathered 70.8 us by one, 66.5 by two, 66.0 by four (H200)
UNROLL, FEWER_THREADS = 2, 128
MOST_PLACES = 6  # operands of which lanes read at places of their own
LEAST_ROW = 1024  # elements of rows that begin anywhere: in shorter ones too many vectors would lie in two


class RowProbe(Probe):
    """Accesses of vectors that lie in one row, and that no choice divides (others are taken element by element)."""

    def uniform(self, condition: Dim, width: int) -> bool:
        step = dims.linear_coefficient(condition, LANE)
        return step == 0 or step in (1, -1) and not any(s.startswith("v") for s in dims.symbols(condition))


class LaneProbe(Probe):
    """Accesses of vectors whose lanes read some operands at places of their own: results are stored as vectors all the same.

    It pays as long as these are few: a store of 16 bytes instead of eight of 2, and no more loads than threads of one
    element each would take. Neighbours in windows, or each second element, those threads bring together better.
    """

    def vectorises(self, width: int) -> bool:
        steps = {load: dims.linear_coefficient(load[1], LANE) for load in self.loads}
        near = any(isinstance(s, int) and s not in (0, 1) for s in steps.values())
        apart = [load for load, step in steps.items() if step is None and not self.shares_loads(*load, width)]
        choices = [c for c in dict.fromkeys(self.conditions) if dims.symbols(c) != {LANE}]  # others are no branches
        return not self.reductions and not near and len(apart) + len(choices) <= MOST_PLACES


class RowValues(ThreadValues):
    """The values of such vectors."""

    def _uniform(self, condition: Dim) -> bool:
        return self._step(condition) in (0, 1, -1)


@dataclass
class Positions:
    """How `numel` results are dealt to threads: in vectors of `width`, of flat memory or of rows of `length` elements."""

    graph: TensorGraph
    stored: Stored
    results: Sequence[int]
    numel: Dim
    space: Space
    width: int = 1
    length: Dim = 0  # of rows; 0: flat
    kind: type[Probe] = Probe

    def flat(self, ranges: Ranges, u: int = 0) -> Dim:
        """Lanes of vector number `u` of a thread: of `w`, or of row `r` and column `c`; adds their symbols to `ranges`."""
        width, lane = self.width, dims.symbol(LANE) if self.width > 1 else 0
        if width > 1:
            ranges.add(LANE, width)
        if self.length == 0:
            return width * ranges.add(f"w{u}", dims.floordiv(self.numel, width)) + lane
        *outer, last = self.space.loops
        row = ranges.add(f"r{u}", dims.product(l.extent for l in outer))
        column = ranges.add(f"c{u}", self.length - width + 1) + lane
        values = dict(zip((l.name for l in outer), ranges.delinearize(row, [l.extent for l in outer])))
        return ranges.simplify(dims.substitute(self.space.values["f"], {**values, last.name: column}))

    def probe(self, u: int = 0) -> Probe:
        """What a thread reads for its vector number `u`."""
        ranges = Ranges()
        flat = self.flat(ranges, u)
        accesses = self.kind(self.graph, ranges, self.stored.values)
        for i in self.results:
            value = self.graph.results[i]
            accesses.at(value, ranges.delinearize(flat, self.graph.shape(value)))
        return accesses

    def numbers(self, vectors: Sequence[int]) -> list[tuple[ir.Value, Dim]]:
        """What says where a thread's vectors read: it is loaded for all of them before any waits for its own.

        (Loads do not move up beyond the store that says that a number is too large.)
        """
        probes = [self.probe(u) for u in vectors if len(vectors) > 1]
        loads = [l for probe in probes if probe.gathers for l in probe.loads if l[0] in self.graph.inputs]
        integers = [l for l in loads if isinstance(ir.RankedTensorType(l[0].type).element_type, ir.IntegerType)]
        return [l for l in dict.fromkeys(integers) if not any(s.startswith("v") for s in dims.symbols(l[1]))]

    def widened(self, kind: type[Probe] = Probe, length: Dim = 0) -> Positions:
        """The same in vectors as wide as accesses of this kind allow."""
        numel = self.numel

        def of(width: int) -> Positions:
            return Positions(self.graph, self.stored, self.results, numel, self.space, width, length, kind)

        values = [self.graph.results[i] for i in self.results]
        enough: Callable[[int], bool] = lambda width: not isinstance(numel, int) or numel // width >= ENOUGH
        return of(choose_width(values, lambda width: of(width).probe(), enough))


def choose_positions(graph: TensorGraph, stored: Stored, results: Sequence[int], numel: Dim, space: Space) -> Positions:
    """Vectors of flat memory, or of rows where those can be wider, or of lanes that read at places of their own."""
    any_width = Positions(graph, stored, results, numel, space)
    found, length = any_width.widened(), space.loops[-1].extent
    if found.width >= MANY_PARTS or found.probe().reductions:  # what a thread adds up is read as it lies
        return found
    if len(space.loops) > 1 and not (isinstance(length, int) and length < LEAST_ROW):
        rows = any_width.widened(RowProbe, length)
        found = rows if rows.width > found.width else found
    lanes = any_width.widened(LaneProbe)
    return lanes if lanes.width // found.width >= MANY_PARTS else found


def emit_pointwise(kernel: GpuKernel, stored: Stored, results: Sequence[int], numel: Dim, space: Space) -> None:
    """Write the results with these numbers, which have `numel` elements each, in the loops `space`."""
    _Pointwise(kernel, choose_positions(kernel.graph, stored, results, numel, space)).emit()


class _Pointwise:
    """The stage: this thread's vectors are numbers `self.vectors`, of which `w{u}` (and `r{u}`, `c{u}`) are symbols."""

    def __init__(self, kernel: GpuKernel, positions: Positions):
        self.positions, self.width, numel = positions, positions.width, positions.numel
        many = not isinstance(numel, int) or numel >= UNROLL_ABOVE
        threads = FEWER_THREADS if many or positions.length != 0 else THREADS
        self.unroll = UNROLL if many and (positions.length == 0 or positions.probe().gathers) else 1
        step = threads * self.unroll
        self.stage = kernel.stage(threads, (dims.ceildiv(dims.ceildiv(numel, self.width), step), 1, 1))
        self.covered = isinstance(numel, int) and numel % (step * self.width) == 0
        b = self.b = self.stage.b
        first = b.binary("arith.muli", self.stage.block(), b.constant(step, b.index))
        first = b.binary("arith.addi", first, self.stage.thread())
        self.vectors = [b.binary("arith.addi", first, b.constant(u * threads, b.index)) for u in range(self.unroll)]
        self.begins = [self.width * b.bind(f"w{u}", w) for u, w in enumerate(self.vectors)]
        self.columns: dict[str, Dim] = {}
        if positions.length != 0:
            for u, begin in enumerate(self.begins):
                row = b.bind(f"r{u}", b.dim(dims.floordiv(begin, positions.length)))
                column = begin - positions.length * row
                b.bind(f"c{u}", b.dim(column))
                self.columns[f"c{u}"] = column

    def emit(self) -> None:
        """Write the body of the stage."""
        conditions = [] if self.covered else [self._is_whole(self.unroll - 1)]
        if self.columns:
            conditions += [c for u in range(self.unroll) for c in self._in_one_row(u)]
        every = range(self.unroll)
        if not conditions:
            self._whole(every)
        else:
            self.b.branch(self.b.all_of(conditions), [], lambda: self._whole(every), self._pieces())
        self.stage.finish()

    # -- conditions ------------------------------------------------------------------------------------------------
    def _is_whole(self, u: int) -> ir.Value:
        return self.b.compare("slt", self.vectors[u], dims.floordiv(self.positions.numel, self.width))

    def _in_one_row(self, u: int) -> list[ir.Value]:
        """Where vector `u` lies in one row, and all of its lanes decide alike."""
        b, lane = self.b, LANE
        conditions = [self.b.compare("slt", self.b.dim(dims.symbol(f"c{u}")), self.positions.length - (self.width - 1))]
        for condition in dict.fromkeys(self.positions.probe(u).conditions):
            if dims.linear_coefficient(condition, lane) == 0:
                continue
            ends = [b.dim(dims.substitute(condition, {lane: k})) for k in (0, self.width - 1)]
            first, last = (b.compare("sge", e, 0) for e in ends)
            conditions.append(b.compare("eq", first, last))
        return conditions

    # -- stores ----------------------------------------------------------------------------------------------------
    def _whole(self, numbers: Sequence[int]) -> list[ir.Value]:
        """Whole vectors, in one row where they are of rows."""
        return self._store(self.positions, numbers, RowValues if self.columns else ThreadValues)

    def _store(self, positions: Positions, numbers: Sequence[int], make: type[ThreadValues]) -> list[ir.Value]:
        """Store vectors that are evaluated at `positions`: all are loaded before the first is stored."""
        graph, ranges = positions.graph, Ranges()
        flats = [positions.flat(ranges, u) for u in numbers]
        ev = positions.stored.evaluator(self.stage, ranges, self.width, make)
        ev.begins = self.columns
        for argument, offset in positions.numbers(numbers):
            ev.load(argument, offset)
        made = [
            (i, u, ev.at(graph.results[i], ranges.delinearize(flat, graph.shape(graph.results[i]))))
            for u, flat in zip(numbers, flats)
            for i in positions.results
        ]
        for i, u, value in made:
            ev.store(self.stage.outputs[i], ev.flat(dims.symbol(f"w{u}")), value)
        return []

    def _pieces(self) -> Callable[[], list[ir.Value]] | None:
        """What there is where not all vectors are whole; None for nothing."""
        numel, flat = self.positions.numel, not self.columns
        exact = self.width == 1 or isinstance(numel, int) and numel % self.width == 0
        if flat and self.unroll == 1:
            return None if exact else lambda: self._one_by_one(0)
        whole = self._whole if flat else self._by_lane

        def each() -> list[ir.Value]:
            for u in range(self.unroll):
                if self.covered:
                    whole([u])
                else:
                    rest = None if exact else partial(self._one_by_one, u)
                    self.b.branch(self._is_whole(u), [], partial(whole, [u]), rest)
            return []

        return each

    def _by_lane(self, numbers: Sequence[int]) -> list[ir.Value]:
        """Vectors that lie in two rows, or that a choice divides: each lane is in a row of its own."""
        return self._store(replace(self.positions, length=0), numbers, ThreadValues)

    def _one_by_one(self, u: int) -> list[ir.Value]:
        """The elements of a vector, as far as there are any."""
        positions, graph, b = self.positions, self.positions.graph, self.b
        end = dims.dim_min(self.begins[u] + self.width, positions.numel)
        with b.loop("f", self.begins[u], end) as f:
            ev = positions.stored.evaluator(self.stage, Ranges({"f": positions.numel}), 1)
            for i in positions.results:
                value = graph.results[i]
                ev.store(self.stage.outputs[i], f, ev.at(value, ev.ranges.delinearize(f, graph.shape(value))))
        return []
