"""Stages in which each thread computes neighbouring elements of the results by itself.

w = block * threads + thread
if (V * w + V <= n)  store V lanes of every result at V * w
else                 the last elements, one by one
"""

from __future__ import annotations

from collections.abc import Sequence

from mlir import ir

from ...dialects import dims
from ...dialects.dims import Dim
from ..loops.index_algebra import Ranges
from ..loops.tensor_graph import TensorGraph
from .gpu_kernel import GpuKernel, GpuStage
from .probe import Probe, choose_width
from .stored import Stored
from .thread_values import LANE, ThreadValues

THREADS = 256
ENOUGH = 1 << 16  # vectors: with fewer they are made narrower, so that all of 132 multiprocessors have several warps
UNROLL_ABOVE = 1 << 22  # elements from which a thread takes two vectors: more loads in flight
UNROLL, UNROLLED_THREADS = 2, 128


def pointwise_width(graph: TensorGraph, stored: Stored, results: Sequence[int], numel: Dim) -> int:
    """The neighbouring elements that a thread computes at once."""
    values = [graph.results[i] for i in results]

    def probe(width: int) -> Probe:
        ranges = Ranges({"w": dims.floordiv(numel, width), LANE: width})
        flat = width * dims.symbol("w") + (dims.symbol(LANE) if width > 1 else 0)
        accesses = Probe(graph, ranges, stored.values)
        for v in values:
            accesses.at(v, ranges.delinearize(flat, graph.shape(v)))
        return accesses

    return choose_width(values, probe, lambda width: not isinstance(numel, int) or numel // width >= ENOUGH)


def emit_pointwise(kernel: GpuKernel, stored: Stored, results: Sequence[int], numel: Dim) -> None:
    """Write the results with these numbers, which have `numel` elements each."""
    width = pointwise_width(kernel.graph, stored, results, numel)
    vectors = dims.ceildiv(numel, width)
    step = UNROLL * UNROLLED_THREADS * width
    unrolled = isinstance(numel, int) and numel >= UNROLL_ABOVE and numel % step == 0
    threads, unroll = (UNROLLED_THREADS, UNROLL) if unrolled else (THREADS, 1)
    stage = kernel.stage(threads, (dims.ceildiv(vectors, threads * unroll), 1, 1))
    b = stage.b
    if unrolled:
        _unrolled(kernel, stored, stage, results, numel, width)
        stage.finish()
        return
    w = stage.global_thread()
    full = isinstance(numel, int) and numel % (THREADS * width) == 0

    def whole() -> list[ir.Value]:
        b.bind("w", w, 0)
        ev = stored.evaluator(stage, Ranges({"w": dims.floordiv(numel, width)}), width)
        _store(ev, stage.outputs, results, ev.flat(dims.symbol("w")))
        return []

    def rest() -> list[ir.Value]:
        first = b.binary("arith.muli", w, b.constant(width, b.index))
        with b.loop("f", first, b.dim(numel)) as f:
            _store(stored.evaluator(stage, Ranges({"f": numel}), 1), stage.outputs, results, f)
        return []

    if full:
        whole()
        stage.finish()
        return
    last = b.dim(dims.floordiv(numel, width))
    inside = b.value("arith.cmpi", (w, last), b.i1, predicate=b.number(6, b.i64))
    exact = width == 1 or (isinstance(numel, int) and numel % width == 0)
    b.branch(inside, [], whole, None if exact else rest)
    stage.finish()


def _unrolled(
    kernel: GpuKernel, stored: Stored, stage: GpuStage, results: Sequence[int], numel: Dim, width: int
) -> None:
    """Whole vectors only: block `k` takes UNROLL runs of `threads` vectors."""
    b = stage.b
    first = b.binary("arith.muli", stage.block(), b.constant(UNROLL * stage.threads, b.index))
    first = b.binary("arith.addi", first, stage.thread())
    ranges = Ranges()
    positions = []
    for u in range(UNROLL):
        at = b.binary("arith.addi", first, b.constant(u * stage.threads, b.index))
        ranges.add(f"w{u}", dims.floordiv(numel, width))
        positions.append(b.bind(f"w{u}", at))
    ev = stored.evaluator(stage, ranges, width)
    made = [
        (stage.outputs[i], ev.flat(p), ev.at(v, ranges.delinearize(ev.flat(p), kernel.graph.shape(v))))
        for p in positions
        for i, v in ((i, kernel.graph.results[i]) for i in results)
    ]
    for buffer, offset, value in made:
        ev.store(buffer, offset, value)


def _store(ev: ThreadValues, outputs: Sequence[ir.Value], results: Sequence[int], flat: Dim) -> None:
    graph = ev.graph
    for i in results:
        value = graph.results[i]
        ev.store(outputs[i], flat, ev.at(value, ev.ranges.delinearize(flat, graph.shape(value))))
