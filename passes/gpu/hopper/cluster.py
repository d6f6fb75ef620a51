"""Neighbouring blocks that run at the same time, a cluster, and add up what they have in the shared memory of their first.

A stage with a cluster is launched like any other: the kernel itself says how many of its blocks are one (PTX ISA,
`.reqnctapercluster`), and `block % BLOCKS` is a block's number in its cluster. A block's memory may be written as soon as
that block runs, hence a barrier without data: each block arrives before it waits for the launch before, and finds that
all have when it has read and added its elements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mlir import ir

from ....dialects import dims
from ..block_reduce import Combine, reduce_lanes, tree
from ..gpu_kernel import WARP, GpuStage, element_bytes
from ..llvm_ops import wait_for_launch
from ..memory_types import from_memory, memory_type, to_memory
from .ptx import Ptx

BLOCKS = 8  # the most that every machine with clusters takes
THREADS = (256, 1024)  # of each, at least: their warps fill the lanes of the one that combines, and at most


class Cluster:
    """The blocks `8 k … 8 k + 7` of `stage`, of which nothing has been written yet, for a grid of `8 k` blocks along x."""

    def __init__(self, stage: GpuStage):
        self.stage, self.ptx, b = stage, Ptx(stage), stage.b
        stage.cluster = BLOCKS
        b.op("nvvm.cluster.arrive.relaxed", (), attributes={"aligned": ir.UnitAttr.get()})
        wait_for_launch(b)
        block = b.binary("arith.remui", stage.block(), b.constant(BLOCKS, b.index))
        own = b.binary("arith.muli", block, b.constant(stage.threads, b.index))
        self.thread = b.binary("arith.addi", own, stage.thread())  # by its number in the cluster

    def reduce(self, values: Sequence[ir.Value], combine: Combine, use: Callable[[list[ir.Value]], Any]) -> None:
        """Combine what all threads have; a warp of the first block does `use(result)`, of which all lanes have the result.

        Warps combine what their lanes have, and write it to the memory of the first block, side by side.
        """
        b, stage, ptx = self.stage.b, self.stage, self.ptx
        made = reduce_lanes(b, values, WARP, combine)
        count = BLOCKS * stage.threads // WARP
        stored = [memory_type(v.type) for v in made]
        begins = [sum(element_bytes(t) for t in stored[:i]) * count for i in range(len(stored))]
        stage.dynamic_shared += sum(element_bytes(t) for t in stored) * count
        b.op("nvvm.cluster.wait", (), attributes={"aligned": ir.UnitAttr.get()})
        slot = b.bind_unique("slot", b.binary("arith.divui", self.thread, b.constant(WARP, b.index)))

        def write() -> list[ir.Value]:
            for value, type, begin in zip(made, stored, begins):
                own = ptx.shared(begin + element_bytes(type) * slot)
                first = b.value("nvvm.mapa", (own, b.constant(0, b.i32)), ir.Type.parse("!llvm.ptr<7>"))
                b.op("llvm.store", (to_memory(b, value), first), attributes={"ordering": b.number(0, b.i64)})
            return []

        def read(place: dims.Dim) -> list[ir.Value]:
            found = []
            for value, type, begin in zip(made, stored, begins):
                at = ptx.shared(begin + element_bytes(type) * place)
                word = b.value("llvm.load", (at,), type, ordering=b.number(0, b.i64))
                found.append(from_memory(b, word, value.type))
            return found

        def finish() -> list[ir.Value]:
            thread = b.bind_unique("thread", stage.thread())
            parts = [read(thread + k) for k in range(0, count, WARP)]
            use(reduce_lanes(b, tree(parts, combine), WARP, combine))
            return []

        lane = b.binary("arith.remui", stage.thread(), b.constant(WARP, b.index))
        b.branch(b.compare("eq", lane, 0), [], write)
        for action in ("arrive", "wait"):
            b.op(f"nvvm.cluster.{action}", (), attributes={"aligned": ir.UnitAttr.get()})
        b.branch(b.compare("ult", self.thread, WARP), [], finish)
