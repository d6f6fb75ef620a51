"""Results of reductions that an earlier stage left in scratch memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlir import ir

from ....dialects.dims import Dim
from ...loops.evaluate_walk import Index
from ...loops.index_algebra import Ranges
from ..gpu_kernel import GpuStage
from ..memory_types import from_memory
from ..thread_values import ThreadValues


class Stored:
    """Which tensor values are in which scratch buffer, in row-major order."""

    def __init__(self) -> None:
        self._buffers: dict[ir.Value, int] = {}

    @property
    def values(self) -> set[ir.Value]:
        """The tensor values that are stored."""
        return set(self._buffers)

    def add(self, value: ir.Value, buffer: int) -> None:
        """State that `value` is in scratch buffer number `buffer` from the next stage on."""
        self._buffers[value] = buffer

    def evaluator(
        self, stage: GpuStage, ranges: Ranges, width: int, make: Callable[..., ThreadValues] = ThreadValues
    ) -> ThreadValues:
        """An evaluator for `stage` that reads what is stored."""
        ev = make(stage, ranges, width)
        for value, number in self._buffers.items():
            ev.known[value] = self._provider(ev, stage, value, number)
        return ev

    def _provider(self, ev: ThreadValues, stage: GpuStage, value: ir.Value, number: int) -> Callable[[Index], Any]:
        def load(offset: Dim) -> ir.Value:
            loaded = ev.load_at(stage.scratch[number], offset)
            return from_memory(ev.b, loaded, ir.RankedTensorType(value.type).element_type)

        def known(index: Index) -> Any:
            offset = ev.ranges.linearize(index, ev.graph.shape(value))
            return ev.remember(("scratch", number), (offset,), lambda: load(offset))

        return known
