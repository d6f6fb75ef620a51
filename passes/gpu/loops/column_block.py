"""Blocks of `lanes` of neighbouring results by `slices` of what is reduced: their threads, and how slices are combined."""

from __future__ import annotations

from typing import Any

from mlir import ir

from ....dialects.dims import Dim
from ...lane_types import element_of
from ..gpu_kernel import GpuStage
from ..memory_types import from_memory, memory_type, to_memory
from ..thread_values import ThreadValues
from .joint_reductions import Joint


def split_block(stage: GpuStage, lanes: int) -> tuple[ir.Value, ir.Value]:
    """This thread's lane of `lanes` and its slice."""
    b = stage.b
    size = b.constant(lanes, b.index)
    return b.binary("arith.remui", stage.thread(), size), b.binary("arith.divui", stage.thread(), size)


def place_column(stage: GpuStage, x: ir.Value, lanes: int, count: Dim, name: str = "r") -> tuple[Dim, ir.Value | None]:
    """The result (bound to symbol `name`) of lane `x` of this block, and a mask where it may be beyond the last."""
    b = stage.b
    at = b.binary("arith.addi", b.binary("arith.muli", stage.block(), b.constant(lanes, b.index)), x)
    if isinstance(count, int) and count % lanes == 0:
        return b.bind(name, at), None
    end = b.dim(count)
    inside = b.compare("ult", at, end)
    last = b.binary("arith.subi", end, b.constant(1, b.index))
    return b.bind(name, b.value("arith.minsi", (at, last), b.index)), inside


def across_slices(
    ev: ThreadValues, stage: GpuStage, joint: Joint, values: list[Any], x: ir.Value, y: ir.Value, block: tuple[int, int]
) -> list[Any]:
    """Combine the accumulators of threads with the same lane `x` of a block of `lanes` by `slices`, in slice 0."""
    b, width, (lanes, slices) = stage.b, ev.width, block
    if slices == 1:
        return values
    elements = [element_of(v.type) for v in values]
    rooms = [stage.shared(memory_type(t), lanes * slices * width) for t in elements]
    size = b.constant(width, b.index)
    place = b.binary("arith.addi", b.binary("arith.muli", y, b.constant(lanes, b.index)), x)
    place = b.binary("arith.muli", place, size)
    for room, value in zip(rooms, values):
        value = to_memory(b, value)
        name = "vector.store" if isinstance(value.type, ir.VectorType) else "memref.store"
        b.op(name, (value, room, place))
    stage.barrier()
    made = list(values)
    first = b.binary("arith.muli", x, size)
    for s in range(1, slices):
        offset = b.binary("arith.addi", first, b.constant(s * lanes * width, b.index))
        other = []
        for room, value, element in zip(rooms, values, elements):
            name = "vector.load" if isinstance(value.type, ir.VectorType) else "memref.load"
            loaded = b.value(name, (room, offset), memory_type(value.type))
            other.append(from_memory(b, loaded, element))
        made = joint.combined(ev, made, other)
    return made
