"""What a kernel reads, seen from one thread: by this the shape of a stage is chosen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mlir import ir

from ...dialects import dims
from ...dialects.dims import Dim
from ..loops.evaluate_accesses import TOKEN, Accesses, Reduction
from ..loops.evaluate_walk import Index
from ..loops.index_algebra import Ranges
from ..loops.tensor_graph import Generic, TensorGraph
from .gpu_kernel import element_bytes
from .lane_places import LANE, divisible, shared_place, vector_expression, whole_load, whole_place

MOST_BYTES = 16  # of one load or store
MOST_STEP = 16
MOST_LANES = 8  # where element sizes differ, the wide ones take several loads


class Probe(Accesses):
    """Accesses that note run-time choices apart and know results that are in memory already.

    With `columns` the reductions in `only` run over position `columns` instead of new variables.
    """

    def __init__(self, graph: TensorGraph, ranges: Ranges, stored: set[ir.Value], columns: Dim | None = None):
        super().__init__(graph, ranges)
        self.columns = columns
        self.only: set[ir.Value] = set()  # the reductions, by last argument, that `columns` is for
        for value in stored:
            self.known[value] = self._stored(value)

    def _stored(self, value: ir.Value) -> Callable[[Index], Any]:
        def known(index: Index) -> Any:
            self.loads.append((value, self.ranges.linearize(index, self.graph.shape(value))))
            return TOKEN

        return known

    def choose(
        self, conditions: list[Dim], yes: Callable[[], Any], no: Callable[[], Any], value: ir.Value, at: Index
    ) -> Any:
        self.conditions += conditions
        yes()
        no()
        return TOKEN

    def reduce(self, generic: Generic, index: Index) -> list[Any]:
        if self.columns is None or generic.arguments[-1] not in self.only:
            return super().reduce(generic, index)
        for out in generic.outs:
            self.at(out, index)
        loops = generic.loops_of(index)
        extents = [generic.extents[d] for d in generic.reductions]
        for d, i in zip(generic.reductions, self.ranges.delinearize(self.columns, extents)):
            loops[d] = i
        self.reductions.append(Reduction(generic, index, {}))
        return self.body(generic, loops, [TOKEN] * len(generic.outs))

    @property
    def gathers(self) -> bool:
        """True if something is read at a place that is computed, or read itself."""
        return any(s.startswith("v") for _, offset in self.loads for s in dims.symbols(offset))

    def vectorises(self, width: int) -> bool:
        """True if `width` lanes are few memory operations, not `width` of each."""
        if any(map(vector_expression, self.positions)):
            return False
        if self._reads_whole_loads(width):
            return all(self.uniform(c, width) for c in self.conditions)
        if any(vector_expression(offset) for _, offset in self.loads):
            return False
        if any(_is_near(dims.linear_coefficient(offset, LANE)) for _, offset in self.loads):
            return False
        if self.gathers and any(LANE in dims.symbols(p) for p in self.positions):
            return False  # windows: each lane reads at places of its own, beside its neighbours'
        return all(self.uniform(c, width) for c in self.conditions)

    def uniform(self, condition: Dim, width: int) -> bool:
        """True if `condition >= 0` holds for all lanes or none."""
        step = dims.linear_coefficient(condition, LANE)
        if step == 0:
            return True
        if step not in (1, -1):
            return False
        first = dims.substitute(condition, {LANE: 0})
        return divisible(first if step == 1 else first + 1, width)

    def _reads_whole_loads(self, width: int) -> bool:
        """True if `width` lanes read near each other what a few whole loads bring (windows, each second element).

        These are next to those of the next thread: with more lanes threads would read with gaps.
        """
        near, needed, single = False, set(), 0
        for argument, offset in self.loads:
            step = dims.linear_coefficient(offset, LANE)
            if step in (0, 1):
                continue
            near = near or _is_near(step)
            lanes = self._whole_load(argument)
            if isinstance(step, int) and abs(step) * width != lanes:
                return False
            places = [whole_place(self._lane(offset, k), lanes) for k in range(width)]
            needed |= {(argument, place[0]) for place in places if place is not None}
            single += places.count(None)
        return near and len(needed) + single <= len(self.loads)

    def shares_loads(self, argument: ir.Value, offset: Dim, width: int) -> bool:
        """True if each of `width` lanes reads out of a load that is known to bring other lanes' elements, too."""
        lanes = self._whole_load(argument)
        return all(shared_place(self._lane(offset, k), lanes) is not None for k in range(width))

    def _whole_load(self, argument: ir.Value) -> int:
        """The elements of a load of an input that has a whole number of such; else 0."""
        count = dims.product(self.graph.shape(argument))
        element = ir.RankedTensorType(argument.type).element_type
        return whole_load(element, count) if isinstance(count, int) else 0

    def _lane(self, offset: Dim, k: int) -> Dim:
        return self.ranges.simplify(dims.substitute(offset, {LANE: k}))


def _is_near(step: Dim | None) -> bool:
    """True if lanes read elements of one cache line one by one (each second, or backwards): threads do so together."""
    return isinstance(step, int) and (step < 0 or step > 1) and abs(step) <= MOST_STEP


def choose_width(
    results: Sequence[ir.Value],
    probe: Callable[[int], Probe],
    fits: Callable[[int], bool],
) -> int:
    """The number of lanes: the narrowest element makes a whole load, if all addresses have a step and `fits(lanes)`."""
    one = probe(1)
    types = [ir.RankedTensorType(v.type).element_type for v in (*results, *(a for a, _ in one.loads))]
    width = min(MOST_BYTES // min(map(element_bytes, types), default=4), MOST_LANES)
    while width > 1 and not (fits(width) and probe(width).vectorises(width)):
        width //= 2
    return width
