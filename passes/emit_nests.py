"""Nests of loops: planning which loops compute which results, and emitting them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from mlir import ir

from ..dialects import dims
from ..dialects.dims import Dim
from .evaluate import Evaluator
from .evaluate_accesses import Accesses
from .loop_nest import Loop, Space, refine
from .loops_builder import LoopsBuilder
from .tensor_graph import TensorGraph

CHUNK_WORK = 65536  # scalar operations of about 0.3 ns: a chunk takes at least 20 us
SHORT_LOOP = 32  # an innermost loop of fewer elements takes the next loop in with it


@dataclass
class Nest:
    """Loops over `space` that write the results with the numbers `results`; `flat` is their position."""

    space: Space
    results: list[int]
    flat: Dim
    inner: int = 1  # how many of the innermost loops belong to one work item
    work: float = 1.0
    items: Dim = field(default=1)


def plan_nests(graph: TensorGraph) -> list[Nest]:
    """One nest for each size of results."""
    groups: dict[Dim, list[int]] = {}
    for i, value in enumerate(graph.results):
        groups.setdefault(dims.product(graph.shape(value)), []).append(i)
    return [_plan(graph, numel, results) for numel, results in groups.items() if numel != 0]


def _plan(graph: TensorGraph, numel: Dim, results: list[int]) -> Nest:
    space = Space.of([("f", numel, False)])
    last: list[Accesses] = []

    def expressions(space: Space) -> list[Dim]:
        accesses = Accesses(graph, space.ranges())
        for i in results:
            value = graph.results[i]
            accesses.at(value, accesses.ranges.delinearize(space.values["f"], graph.shape(value)))
        last[:] = [accesses]
        return accesses.expressions()

    refine(space, expressions)
    nest = Nest(space, results, space.values["f"])
    counts = last[0]
    nest.work = 1 + 0.25 * counts.operations + 4 * counts.functions + 0.5 * len(counts.loads)
    while nest.inner < len(space.loops) - 1 and _short(space.loops[-nest.inner :]):
        nest.inner += 1
    outer = space.loops[: -nest.inner] if len(space.loops) > 1 else space.loops
    nest.items = dims.product(l.extent for l in outer)
    return nest


def _short(loops: Sequence[Loop]) -> bool:
    total = dims.product(l.extent for l in loops)
    return isinstance(total, int) and total < SHORT_LOOP


class Emission:
    """Writes nests into a loops-level function."""

    def __init__(
        self,
        graph: TensorGraph,
        b: LoopsBuilder,
        inputs: dict[ir.Value, ir.Value],
        outputs: list[ir.Value],
        status: ir.Value,
        begin: ir.Value,
        end: ir.Value,
        vector_bits: int,
    ):
        self.graph, self.b, self.inputs, self.outputs = graph, b, inputs, outputs
        self.status, self.begin, self.end, self.vector_bits = status, begin, end, vector_bits
        self.range: Dim = 0
        self.grain: Dim = 1

    def emit(self, nests: list[Nest]) -> None:
        """Emit all nests; their work items follow each other in the kernel's range."""
        single = len(nests) == 1
        for nest in nests:
            base = self.range
            self.range = base + nest.items
            if single:
                self._nest(nest, self.begin, self.end)
                continue
            b = self.b
            zero = b.dim(0)
            low = b.value("arith.maxsi", (b._binary("arith.subi", self.begin, b.dim(base)), zero), b.index)
            high = b.value("arith.minsi", (b._binary("arith.subi", self.end, b.dim(base)), b.dim(nest.items)), b.index)
            self._nest(nest, low, high)
        self.grain = self._grain(nests)

    def _grain(self, nests: list[Nest]) -> Dim:
        """Work items that make a chunk worth a thread's while."""
        grains: list[Dim] = []
        for n in nests:
            inner = dims.product(l.extent for l in n.space.loops[-n.inner :]) if len(n.space.loops) > 1 else 1
            work = max(1, int(CHUNK_WORK / n.work))
            grains.append(
                max(1, work // max(inner, 1)) if isinstance(inner, int) else dims.dim_max(1, dims.floordiv(work, inner))
            )
        return grains[0] if grains else 1

    def _nest(self, nest: Nest, low: ir.Value, high: ir.Value) -> None:
        loops = nest.space.loops
        b = self.b
        ranges = nest.space.ranges()
        ev = Evaluator(self.graph, b, self.inputs, ranges, self.status)
        if len(loops) == 1:
            with b.loop(loops[0].name, low, high):
                self._store(nest, ev)
            return
        outer, inner = loops[: -nest.inner], loops[-nest.inner :]
        name = outer[0].name if len(outer) == 1 else f"item{b.fresh}"
        with b.loop(name, low, high) as item:
            if len(outer) > 1:
                ev.ranges.add(name, nest.items)
                for loop, value in zip(outer, ev.ranges.delinearize(item, [l.extent for l in outer])):
                    b.bind(loop.name, b.dim(value))
            self._loops(nest, ev, inner)

    def _loops(self, nest: Nest, ev: Evaluator, loops: Sequence[Loop]) -> None:
        if not loops:
            self._store(nest, ev)
            return
        with self.b.loop(loops[0].name, 0, loops[0].extent):
            self._loops(nest, ev, loops[1:])

    def _store(self, nest: Nest, ev: Evaluator) -> None:
        for i in nest.results:
            value = self.graph.results[i]
            element = ev.at(value, ev.ranges.delinearize(nest.flat, self.graph.shape(value)))
            self.b.op("memref.store", (element, self.outputs[i], self.b.dim(nest.flat)))
