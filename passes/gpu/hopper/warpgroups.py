"""A stage whose first warpgroup copies while the others compute.

one thread makes the barriers of the rings; the block waits for it
warpgroup 0: one thread produces                           the others: all threads consume
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mlir import ir

from ....dialects import dims
from ..llvm_ops import wait_for_launch
from .ptx import Ptx
from .ring import Ring


def specialise(
    ptx: Ptx,
    rings: Sequence[Ring],
    registers: tuple[int, int],
    produce: Callable[[], None],
    consume: Callable[[], None],
) -> None:
    """Write and finish the stage of `ptx` from what `produce` and `consume` emit.

    Both may use the symbols `thread`, `first` (the block's number), `grid` (blocks) and `group` (the thread's
    warpgroup). `registers` is what a thread of the producer and of a consumer has; 0: as many as it starts with.
    """
    b, stage = ptx.b, ptx.stage
    b.bind("thread", stage.thread())
    b.bind("first", stage.block())
    b.bind("grid", b.value("gpu.grid_dim", (), b.index, dimension=b.attribute("#gpu<dim x>")))
    b.bind("group", ptx.warpgroup())
    one = b.compare("eq", dims.symbol("thread"), 0)
    fewer, more = registers

    def initialise() -> list[ir.Value]:
        for ring in rings:
            ring.initialise()
        ptx.mbarrier_fence()
        return []

    def copy() -> list[ir.Value]:
        if fewer:
            ptx.registers("decrease", fewer)
        b.branch(one, [], lambda: produce() or [])
        return []

    def compute() -> list[ir.Value]:
        if more:
            ptx.registers("increase", more)
        consume()
        return []

    b.branch(one, [], initialise)
    stage.barrier()
    wait_for_launch(b)
    b.branch(b.compare("eq", dims.symbol("group"), 0), [], copy, compute)
    stage.finish()
