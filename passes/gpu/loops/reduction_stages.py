"""What the stages of reductions have in common: where their results and elements are, and who takes what they make."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mlir import ir

from ....dialects import dims
from ....dialects.dims import Dim
from ...loops.index_algebra import Ranges
from ..gpu_kernel import GpuKernel, GpuStage
from ..memory_types import from_memory, memory_type, to_memory
from ..probe import Probe
from ..thread_values import ThreadValues
from .joint_reductions import Joint
from .rounds import Step
from .stored import Stored


@dataclass
class ReductionStages:
    """Reductions in one pass: `count` results of `shape` each, of `length` elements."""

    kernel: GpuKernel
    stored: Stored
    joint: Joint
    results: list[int]

    def __post_init__(self) -> None:
        g = self.joint.first
        self.shape: list[Dim] = [g.extents[t[1]] if t[0] == "d" else 1 for t in g.maps[len(g.inputs)]]
        self.length = dims.product(g.extents[d] for d in g.reductions)
        self.count = dims.product(self.shape)
        self.elements = [ir.RankedTensorType(v.type).element_type for v in self.joint.results]

    def row(self, ranges: Ranges, row: Dim) -> list[Dim]:
        """The loop positions of result `row` (flat); those that are reduced are 0."""
        g = self.joint.first
        loops: list[Dim] = [0] * len(g.extents)
        for t, i in zip(g.maps[len(g.inputs)], ranges.delinearize(row, self.shape)):
            if t[0] == "d":
                loops[t[1]] = i
        return loops

    def loops(self, ranges: Ranges, row: Dim, column: Dim) -> list[Dim]:
        """The loop positions of element `column` of what result `row` reduces."""
        g, loops = self.joint.first, self.row(ranges, row)
        for d, i in zip(g.reductions, ranges.delinearize(column, [g.extents[d] for d in g.reductions])):
            loops[d] = i
        return loops

    def probe(self, row: Dim, column: Dim, ranges: Ranges) -> Probe:
        """What one element of one result reads."""
        probe = Probe(self.kernel.graph, ranges, self.stored.values)
        for g in self.joint.generics:
            probe.body(g, self.loops(ranges, row, column), [None] * len(g.outs))
        return probe

    def scratch(self, chunks: int) -> list[int]:
        """New buffers for the accumulators of `chunks` parts of each result."""
        return [self.kernel.new_scratch(memory_type(t), self.count * chunks) for t in self.elements]

    def adding(self, ev: ThreadValues, parts: list[int], place: Callable[[Dim], Dim]) -> Step:
        """A step that combines accumulators with those of part `k` of a result, which are at `place(k)` of the scratch `parts`."""

        def step(k: Dim, carried: list[Any]) -> list[Any]:
            loads = [ev.load_at(ev.stage.scratch[n], place(k)) for n in parts]
            return self.joint.combined(ev, carried, [from_memory(ev.b, x, t) for x, t in zip(loads, self.elements)])

        return step

    def finals(self) -> list[int]:
        """Scratch for the reduction's results, where nothing else is made of them at once."""
        return [] if self.results else self.scratch(1)

    def deliver(
        self, ev: ThreadValues, finals: list[int], made: list[Any], flat: Dim, conditions: list[ir.Value | None]
    ) -> None:
        """Write what is made of the reduction's results `made` at `flat`, or the results themselves to scratch."""
        if not self.results:
            self.keep(ev, finals, made, flat, conditions)
            for value, buffer in zip(self.joint.results, finals):
                self.stored.add(value, buffer)
            return
        graph, stage = self.kernel.graph, ev.stage
        for g in self.joint.generics:
            ev.together[g.arguments[-1]] = lambda generic, index: self.joint.of(generic, made)
        flat = ev.ranges.simplify(flat)
        values = [graph.results[i] for i in self.results]
        written = [ev.at(v, ev.ranges.delinearize(flat, graph.shape(v))) for v in values]

        def store() -> list[ir.Value]:
            for i, value in zip(self.results, written):
                ev.store(stage.outputs[i], flat, value)
            return []

        stage.b.under(conditions, store)

    def keep(
        self, ev: ThreadValues, buffers: list[int], values: list[Any], offset: Dim, conditions: list[ir.Value | None]
    ) -> None:
        """Write accumulators to scratch."""
        stage = ev.stage

        def store() -> list[ir.Value]:
            for buffer, value in zip(buffers, values):
                ev.store(stage.scratch[buffer], offset, to_memory(ev.b, value))
            return []

        stage.b.under(conditions, store)


def is_first(stage: GpuStage, lane: ir.Value) -> ir.Value:
    b = stage.b
    return b.compare("eq", lane, 0)
