"""The second stage of an attention whose keys are split: parts merged in order, and the epilogue.

A thread has a vector of columns of one query row:  out = sum_p e_p O_p / sum_p e_p total_p,  e_p = exp(m_p - max m).
The maximum is the running one, so each part is read once; the order is fixed, and so are the bits.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf

from mlir import ir

from ....dialects import dims
from ....dialects.dims import Dim
from ...loops.index_algebra import Ranges
from ..gpu_kernel import GpuKernel, GpuStage
from ..matmul.epilogue import Epilogue
from ..thread_values import ThreadValues, divisible
from .layout import NVIDIA, QUADS, Functions
from .problem import Attention
from .softmax import Softmax
from .tiles import AttentionTiles
from .warp_tiles import WarpTiles
from .wave_tiles import WaveTiles

THREADS = 128
Tiles = AttentionTiles | WarpTiles | WaveTiles


def new_parts(kernel: GpuKernel, attention: Attention, tiles: Tiles) -> tuple[int, int, int]:
    """Scratch memory for all parts: O, maxima and totals."""
    p, f32 = attention.product, ir.F32Type.get()
    lines = tiles.splits * p.batches * p.m
    return kernel.new_scratch(f32, lines * tiles.depth), kernel.new_scratch(f32, lines), kernel.new_scratch(f32, lines)


def emit_parts(
    kernel: GpuKernel, attention: Attention, tiles: Tiles, parts: tuple[int, int, int], exact: bool,
    functions: Functions = NVIDIA,
) -> None:  # fmt: skip
    """Write the outputs from the parts in scratch memory."""
    p = attention.product
    width = next(v for v in (4, 2, 1) if divisible(p.n, v))
    vectors = dims.floordiv(p.n, width)
    lines = p.batches * p.m
    total = lines * vectors
    stage = kernel.stage(THREADS, (dims.ceildiv(total, THREADS), 1, 1))
    b, softmax = stage.b, Softmax(stage.b, attention.scale, replace(QUADS, functions=functions), exact=exact)
    b.bind("flat", stage.global_thread())
    flat = dims.symbol("flat")
    line = b.bind("line", b.dim(dims.floordiv(flat, vectors)))
    b.bind("batch", b.dim(dims.floordiv(line, p.m)))
    b.bind("row", b.dim(dims.mod(line, p.m)))
    w = b.bind("w", b.dim(dims.mod(flat, vectors)))
    o, tops, totals = (stage.scratch[x] for x in parts)
    type = ir.VectorType.get([width], b.f32) if width > 1 else b.f32
    spread = lambda x: b.value("vector.broadcast", (x,), type) if width > 1 else x

    def inside() -> list[ir.Value]:
        ev = ThreadValues(stage, Ranges({"batch": p.batches, "row": p.m, "w": vectors}), width)
        load = lambda buffer, at: b.value("memref.load", (buffer, b.dim(at)), b.f32)

        def part(number: Dim, state: list[ir.Value]) -> list[ir.Value]:
            top, sum, out = state
            at = number * lines + line
            own = load(tops, at)
            most = softmax.maximum(top, own)
            base = softmax.base(most)
            old, new = (softmax.exponential(x, base) for x in (top, own))
            sum = b.value("math.fma", (sum, old, softmax.binary("mulf", load(totals, at), new)), b.f32)
            added = b.value("arith.mulf", (ev.load_at(o, at * tiles.depth + ev.flat(w)), spread(new)), type)
            return [most, sum, b.value("math.fma", (out, spread(old), added), type)]

        zero = softmax.constant(0.0)
        start = [softmax.constant(-inf), zero, spread(zero)]
        if isinstance(tiles.splits, int):  # in one piece: the loads of all parts are under way together
            for number in range(tiles.splits):
                start = part(number, start)
            top, sum, out = start
        else:
            top, sum, out = b.loop_carried("part", 0, tiles.splits, start, part)
        value = b.value("arith.mulf", (out, spread(softmax.inverse(sum))), type)
        lse = attention.root.results[1]
        for result, buffer in zip(kernel.graph.results, stage.outputs):
            if result == lse:
                _store_lse(stage, buffer, softmax.lse(top, sum))
        epilogue = Epilogue(stage, p, apart=lse)
        if epilogue.halves:
            narrow = ir.VectorType.get([width], epilogue.element) if width > 1 else epilogue.element
            value = b.value("arith.truncf", (value,), narrow)
        epilogue.write(ev, dims.symbol("batch"), dims.symbol("row"), w, value)
        return []

    less = b.value("arith.cmpi", (b.dim(flat), b.dim(total)), b.i1, predicate=b.number(2, b.i64))
    b.branch(less, [], inside)
    stage.finish()


def _store_lse(stage: GpuStage, buffer: ir.Value, value: ir.Value) -> None:
    """By the thread that has the row's first columns."""
    b = stage.b

    def store() -> list[ir.Value]:
        b.op("memref.store", (value, buffer, b.dim(dims.symbol("line"))))
        return []

    first = b.value("arith.cmpi", (b.dim(dims.symbol("w")), b.dim(0)), b.i1, predicate=b.number(0, b.i64))
    b.branch(first, [], store)
