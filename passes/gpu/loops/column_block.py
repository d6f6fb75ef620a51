"""Blocks of `lanes` of neighbouring results by `slices` of what is reduced: their threads, and how slices are combined.

Results in rows of `n`, no whole number of vectors, are taken in vectors nevertheless: the last one of a row begins at
`n - V`, over what the one before has, too, and stores the rest of it only.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from mlir import ir

from ....dialects import dims
from ....dialects.dims import Dim
from ..gpu_kernel import GpuStage
from ..lane_places import LANE
from ..thread_values import ThreadValues
from .joint_reductions import Joint
from .stored import from_scratch, scratch_type, to_scratch


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
    inside = b.value("arith.cmpi", (at, end), b.i1, predicate=b.number(6, b.i64))
    last = b.binary("arith.subi", end, b.constant(1, b.index))
    return b.bind(name, b.value("arith.minsi", (at, last), b.index)), inside


class OverlappingColumns(ThreadValues):
    """The evaluator of vectors of which the last one of a row overlaps the one before, in its lanes below `first_lane`."""

    first_lane: ir.Value

    def place(self, w: Dim, length: Dim) -> Dim:
        """The results of vector `w`: `row * length + column`, for symbols of its row of `length` results and its column."""
        b, width = self.b, self.width
        row = dims.floordiv(w, dims.ceildiv(length, width))
        begin = width * (w - row * dims.ceildiv(length, width))
        column = b.value("arith.minsi", (b.dim(begin), b.dim(length - width)), b.index)
        self.first_lane = b.binary("arith.subi", b.dim(begin), column)
        column = b.bind("column", column)
        return b.bind("row", b.dim(row)) * length + column + dims.symbol(LANE)

    def store(self, buffer: ir.Value, offset: Dim, value: ir.Value) -> None:
        if not self.varies(offset):
            super().store(buffer, offset, value)
            return
        b, store, vector = self.b, super().store, self.vector(value)
        element = ir.VectorType(vector.type).element_type

        def whole() -> list[ir.Value]:
            store(buffer, offset, vector)
            return []

        def one(k: int) -> list[ir.Value]:
            lane = b.value("vector.extract", (vector,), element, static_position=ir.DenseI64ArrayAttr.get([k]))
            b.op("memref.store", (lane, buffer, b.dim(self.lane(offset, k))))
            return []

        def rest() -> list[ir.Value]:
            for k in range(1, self.width):
                mine = b.value(
                    "arith.cmpi", (self.first_lane, b.constant(k, b.index)), b.i1, predicate=b.number(3, b.i64)
                )
                b.branch(mine, [], partial(one, k))
            return []

        none = b.value("arith.cmpi", (self.first_lane, b.constant(0, b.index)), b.i1, predicate=b.number(0, b.i64))
        b.branch(none, [], whole, rest)


def across_slices(
    ev: ThreadValues, stage: GpuStage, joint: Joint, values: list[Any], x: ir.Value, y: ir.Value, block: tuple[int, int]
) -> list[Any]:
    """Combine the accumulators of threads with the same lane `x` of a block of `lanes` by `slices`, in slice 0."""
    b, width, (lanes, slices) = stage.b, ev.width, block
    if slices == 1:
        return values
    elements = [ir.VectorType(v.type).element_type if isinstance(v.type, ir.VectorType) else v.type for v in values]
    rooms = [stage.shared(scratch_type(t), lanes * slices * width) for t in elements]
    size = b.constant(width, b.index)
    place = b.binary("arith.addi", b.binary("arith.muli", y, b.constant(lanes, b.index)), x)
    place = b.binary("arith.muli", place, size)
    for room, value in zip(rooms, values):
        value = to_scratch(ev, value, room)
        name = "vector.store" if isinstance(value.type, ir.VectorType) else "memref.store"
        b.op(name, (value, room, place))
    stage.barrier()
    made = list(values)
    first = b.binary("arith.muli", x, size)
    for s in range(1, slices):
        offset = b.binary("arith.addi", first, b.constant(s * lanes * width, b.index))
        other = []
        for room, value, element in zip(rooms, values, elements):
            stored = ir.MemRefType(room.type).element_type
            if isinstance(value.type, ir.VectorType):
                loaded = b.value("vector.load", (room, offset), ir.VectorType.get([width], stored))
            else:
                loaded = b.value("memref.load", (room, offset), stored)
            other.append(from_scratch(ev, loaded, element))
        made = joint.combined(ev, made, other)
    return made
