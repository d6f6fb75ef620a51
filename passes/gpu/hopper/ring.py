"""A ring of stages in shared memory between a producer and consumers, on mbarriers: the pipeline of TMA kernels.

A stage has two barriers: `full` ends a phase when the producer has arrived and all expected bytes are there, `empty`
when every consumer warp has arrived. Who walks the ring carries (stage, phase); the phase turns at each round:

    producer  (0, 1): wait empty, expect, copy …, advance        parity 1 of a new barrier counts as ended
    consumer  (0, 0): wait full, use, release, advance
"""

from __future__ import annotations

from dataclasses import dataclass

from mlir import ir

from ....dialects import dims
from ....dialects.dims import Dim
from .ptx import Ptx

BARRIER_BYTES = 8


@dataclass(frozen=True)
class Ring:
    """`stages` stages of `stage_bytes` from the start of dynamic shared memory; their barriers from byte `barriers` on."""

    ptx: Ptx
    stages: int
    stage_bytes: int
    barriers: int
    consumer_warps: int

    def initialise(self) -> None:
        """Make the barriers: one thread does, and the block synchronises before anyone uses them."""
        for s in range(self.stages):
            self.ptx.mbarrier_init(self.full(s), 1)
            self.ptx.mbarrier_init(self.empty(s), self.consumer_warps)

    @property
    def end(self) -> int:
        """The byte after the barriers."""
        return self.barriers + 2 * BARRIER_BYTES * self.stages

    def full(self, stage: Dim) -> ir.Value:
        """The barrier that says that a stage is filled."""
        return self.ptx.shared(self.barriers + BARRIER_BYTES * stage)

    def empty(self, stage: Dim) -> ir.Value:
        """The barrier that says that a stage may be overwritten."""
        return self.ptx.shared(self.barriers + BARRIER_BYTES * self.stages + BARRIER_BYTES * stage)

    def start(self, producer: bool) -> list[ir.Value]:
        """Stage and phase to begin with."""
        b = self.ptx.b
        return [b.constant(0, b.index), b.constant(int(producer), b.i32)]

    def bind(self, name: str, stage: ir.Value) -> Dim:
        """A carried stage as a symbol."""
        return self.ptx.b.bind(name, stage)

    def skip(self, stage: ir.Value, phase: ir.Value, count: Dim) -> list[ir.Value]:
        """The stage that is `count` stages on, and its phase."""
        b = self.ptx.b
        after = b.bind_unique("after", stage) + count
        turns = self.ptx.i32(b.dim(dims.mod(dims.floordiv(after, self.stages), 2)))
        return [b.dim(dims.mod(after, self.stages)), b.value("arith.xori", (phase, turns), b.i32)]

    def advance(self, stage: ir.Value, phase: ir.Value) -> list[ir.Value]:
        """The next stage and its phase."""
        b = self.ptx.b
        one, count = b.constant(1, b.index), b.constant(self.stages, b.index)
        following = b.value("arith.addi", (stage, one), b.index)
        last = b.compare("eq", following, count)
        wrapped = b.select(last, 0, following)
        turned = b.value("arith.xori", (phase, b.value("arith.extui", (last,), b.i32)), b.i32)
        return [wrapped, turned]
