"""Results of reductions that an earlier stage left in scratch memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlir import ir

from ...loops.evaluate_walk import Index
from ...loops.index_algebra import Ranges
from ..gpu_kernel import GpuStage
from ..thread_values import ThreadValues


def scratch_type(type: ir.Type) -> ir.Type:
    """How an accumulator lies in memory: i1 as i8."""
    if isinstance(type, ir.IntegerType) and ir.IntegerType(type).width == 1:
        return ir.IntegerType.get_signless(8)
    return type


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
        def known(index: Index) -> Any:
            offset = ev.ranges.linearize(index, ev.graph.shape(value))
            return ev.remember(
                ("scratch", number), (offset,), lambda: load_scratch(ev, stage.scratch[number], offset, value)
            )

        return known


def load_scratch(ev: ThreadValues, buffer: ir.Value, offset: Any, value: ir.Value) -> ir.Value:
    """Load an accumulator of the type of `value`'s elements."""
    return from_scratch(ev, ev.load_at(buffer, offset), ir.RankedTensorType(value.type).element_type)


def from_scratch(ev: ThreadValues, loaded: ir.Value, element: ir.Type) -> ir.Value:
    """A loaded accumulator as a value of `element`."""
    type = loaded.type
    if (ir.VectorType(type).element_type if isinstance(type, ir.VectorType) else type) == element:
        return loaded
    wanted = ir.VectorType.get(ir.VectorType(type).shape, element) if isinstance(type, ir.VectorType) else element
    return ev.b.value("arith.trunci", (loaded,), wanted)


def to_scratch(ev: ThreadValues, value: ir.Value, buffer: ir.Value) -> ir.Value:
    """An accumulator as it lies in `buffer`."""
    element = ir.MemRefType(buffer.type).element_type
    type = value.type
    if (ir.VectorType(type).element_type if isinstance(type, ir.VectorType) else type) == element:
        return value
    wanted = ir.VectorType.get(ir.VectorType(type).shape, element) if isinstance(type, ir.VectorType) else element
    return ev.b.value("arith.extui", (value,), wanted)
