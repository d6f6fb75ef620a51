"""The stage before one that writes updates: `y = x`, unless they are one buffer, which is known when it runs.

    w = (step * UNROLL + u) * all threads + thread         u = 0 … UNROLL - 1, vectors of x and y

There are few blocks, so that little is started where there is nothing to copy, and each thread has several loads under way.
"""

from __future__ import annotations

from collections.abc import Sequence

from mlir import ir

from ....dialects import dims
from ....dialects.dims import Dim
from ...loops.index_algebra import Ranges
from ..gpu_kernel import GpuKernel, GpuStage
from ..lane_places import LANE, divisible
from ..probe import Probe, choose_width
from ..thread_values import ThreadValues

THREADS = 256
BLOCKS = 264  # two on each of 132 multiprocessors
UNROLL = 4


def copy_operand(kernel: GpuKernel, x: ir.Value) -> None:
    """Write the stage of `kernel` that makes its result of its operand `x`."""
    shape = kernel.graph.shape(x)
    width = _width(kernel, x)
    vectors = dims.floordiv(dims.product(shape), width)
    blocks = dims.dim_min(dims.ceildiv(vectors, THREADS), BLOCKS)
    stage = kernel.stage(THREADS, (blocks, 1, 1))
    b = stage.b
    thread = b.bind("thread", stage.global_thread())
    every = b.bind("every", b.dim(blocks * THREADS))

    def move(places: Sequence[Dim]) -> list[ir.Value]:
        ranges, numbers = Ranges(), [b.bind_unique("w", b.dim(w)) for w in places]
        for w in numbers:
            ranges.add(str(w), vectors)
        ev = ThreadValues(stage, ranges, width)
        flats = [ev.flat(w) for w in numbers]
        made = [ev.at(x, ranges.delinearize(flat, shape)) for flat in flats]
        for flat, value in zip(flats, made):
            for buffer in stage.outputs:
                ev.store(buffer, flat, value)
        return []

    def copy() -> list[ir.Value]:
        with b.loop("step", 0, dims.ceildiv(vectors, UNROLL * blocks * THREADS)) as step:
            places = [(step * UNROLL + u) * every + thread for u in range(UNROLL)]

            def some() -> list[ir.Value]:
                for w in places:
                    b.branch(b.compare("slt", w, vectors), [], lambda w=w: move([w]))
                return []

            b.branch(b.compare("slt", places[-1], vectors), [], lambda: move(places), some)
        return []

    apart = _apart(stage, x)
    copy() if apart is None else b.branch(apart, [], copy)
    stage.finish()


def _apart(stage: GpuStage, x: ir.Value) -> ir.Value | None:
    """Whether `x` and the result are two buffers; None if they are for sure."""
    if x not in stage.inputs:
        return None
    b = stage.b
    old, new = (b.value("llvm.ptrtoint", (stage.address(m),), b.i64) for m in (stage.inputs[x], stage.outputs[0]))
    return b.compare("ne", old, new)


def _width(kernel: GpuKernel, x: ir.Value) -> int:
    """Neighbouring elements that a thread copies at once."""
    graph = kernel.graph
    total = dims.product(graph.shape(x))

    def probe(width: int) -> Probe:
        ranges = Ranges({"w": dims.floordiv(total, width), LANE: width})
        accesses = Probe(graph, ranges, set())
        flat = width * dims.symbol("w") + (dims.symbol(LANE) if width > 1 else 0)
        accesses.at(x, ranges.delinearize(flat, graph.shape(x)))
        return accesses

    return choose_width([x], probe, lambda width: divisible(total, width))
