"""What the threads before one have: sums over the lanes before it and the waves before its own.

Lanes exchange totals with the lane whose number differs in one bit after another; who has that bit set comes after the other.
"""

from __future__ import annotations

from collections.abc import Callable

from mlir import ir

from ..loops.loops_builder import LoopsBuilder
from .block_reduce import exchange, shuffle_xor
from .gpu_kernel import GpuStage

Both = Callable[[ir.Value, ir.Value], ir.Value]


def scan_lanes(
    b: LoopsBuilder, lane: ir.Value, lanes: int, total: ir.Value, neutral: ir.Value, both: Both
) -> tuple[ir.Value, ir.Value]:
    """What the lanes before number `lane` of `lanes` have, and what all of them have, in the order of lanes."""
    before, distance = neutral, 1
    while distance < lanes:
        other = shuffle_xor(b, total, distance)
        bit = b.value("arith.andi", (lane, b.constant(distance, b.index)), b.index)
        after = b.compare("ne", bit, 0)
        before = b.select(after, both(other, before), before)
        total, distance = both(total, other), 2 * distance
    return before, total


def sum_before(stage: GpuStage, value: ir.Value) -> ir.Value:
    """The sum of the i32s of all threads of the block before each: one barrier."""
    b, size = stage.b, stage.kernel.wave
    add = lambda x, y: b.value("arith.addi", (x, y), b.i32)
    lane, wave = (b.value(f"arith.{n}ui", (stage.thread(), b.constant(size, b.index)), b.index) for n in ("rem", "div"))
    zero = b.constant(0, b.i32)
    before, total = scan_lanes(b, lane, size, value, zero, add)
    for number, (part,) in enumerate(exchange(stage, [total])):
        before = add(before, b.select(b.compare("slt", number, wave), part, zero))
    return before
