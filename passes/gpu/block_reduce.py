"""Values of the threads of a warp or block combined, in an order that does not change from run to run.

A butterfly of `gpu.shuffle xor` leaves each lane of a wave (32 or 64 lanes, as the GPU has it) with the combination of
all; between waves the values go through shared memory, which every wave reads and combines again: one barrier.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mlir import ir

from ..loops.loops_builder import LoopsBuilder
from .gpu_kernel import WARP, GpuStage
from .memory_types import from_memory, memory_type, to_memory

READ_ALL = 16  # waves up to which each thread reads what all have stored: sooner there than by more shuffles

Combine = Callable[[Sequence[ir.Value], Sequence[ir.Value]], list[ir.Value]]


def shuffle_xor(b: LoopsBuilder, value: ir.Value, distance: int) -> ir.Value:
    """The value of the lane whose number differs in the bits of `distance`."""
    type, i32, i64 = value.type, b.i32, b.i64
    if isinstance(type, ir.F64Type):
        bits = shuffle_xor(b, b.value("arith.bitcast", (value,), i64), distance)
        return b.value("arith.bitcast", (bits,), type)
    if isinstance(type, (ir.F16Type, ir.BF16Type)):
        i16 = ir.IntegerType.get_signless(16)
        bits = shuffle_xor(b, b.value("arith.bitcast", (value,), i16), distance)
        return b.value("arith.bitcast", (bits,), type)
    if isinstance(type, ir.IndexType):
        return b.value(
            "arith.index_cast", (shuffle_xor(b, b.value("arith.index_cast", (value,), i64), distance),), type
        )
    width = 32 if isinstance(type, ir.F32Type) else ir.IntegerType(type).width
    if width == 64:
        low = b.value("arith.trunci", (value,), i32)
        high = b.value("arith.trunci", (b.value("arith.shrui", (value, b.constant(32, i64)), i64),), i32)
        low, high = (b.value("arith.extui", (shuffle_xor(b, v, distance),), i64) for v in (low, high))
        return b.value("arith.ori", (low, b.value("arith.shli", (high, b.constant(32, i64)), i64)), i64)
    if width < 32:
        wide = shuffle_xor(b, b.value("arith.extui", (value,), i32), distance)
        return b.value("arith.trunci", (wide,), type)
    operands = (value, b.constant(distance, i32), b.constant(max(WARP, 1 << distance.bit_length()), i32))
    mode = b.attribute("#gpu<shuffle_mode xor>")
    return b.op("gpu.shuffle", operands, [type, b.i1], {"mode": mode}).results[0]


def reduce_lanes(b: LoopsBuilder, values: Sequence[ir.Value], lanes: int, combine: Combine) -> list[ir.Value]:
    """Combine across groups of `lanes` neighbouring lanes (a power of two up to a wave); all of a group get the result."""
    made = list(values)
    distance = lanes // 2
    while distance:
        made = combine(made, [shuffle_xor(b, v, distance) for v in made])
        distance //= 2
    return made


def reduce_block(stage: GpuStage, values: Sequence[ir.Value], threads: int, combine: Combine) -> list[ir.Value]:
    """Combine across `threads` neighbouring threads: groups of lanes, or the whole block; all get the result."""
    b, size = stage.b, stage.kernel.wave
    made = reduce_lanes(b, values, min(threads, size), combine)
    if threads <= size:
        return made
    parts = exchange(stage, made)
    return reduce_lanes(b, tree(parts, combine), threads // size // len(parts), combine)


def exchange(stage: GpuStage, values: Sequence[ir.Value]) -> list[list[ir.Value]]:
    """What each wave of the block has, in all threads; of more than READ_ALL waves each lane has that of one, as many lanes all."""
    b, size, waves = stage.b, stage.kernel.wave, stage.threads // stage.kernel.wave
    thread, lanes = stage.thread(), b.constant(size, b.index)
    wave = b.binary("arith.divui", thread, lanes)
    rooms = [stage.shared(memory_type(v.type), waves) for v in values]
    for room, value in zip(rooms, values):
        b.op("memref.store", (to_memory(b, value), room, wave))
    stage.barrier()

    def load(number: ir.Value) -> list[ir.Value]:
        loaded = [b.value("memref.load", (room, number), memory_type(v.type)) for room, v in zip(rooms, values)]
        return [from_memory(b, x, v.type) for x, v in zip(loaded, values)]

    if waves > READ_ALL:
        lane = b.binary("arith.remui", thread, lanes)
        return [load(b.binary("arith.remui", lane, b.constant(waves, b.index)))]
    return [load(b.constant(w, b.index)) for w in range(waves)]


def tree(parts: Sequence[Sequence[ir.Value]], combine: Combine) -> list[ir.Value]:
    """A power of two of parts combined, neighbours first."""
    made = [list(part) for part in parts]
    while len(made) > 1:
        made = [combine(x, y) for x, y in zip(made[::2], made[1::2])]
    return made[0]
