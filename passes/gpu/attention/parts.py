"""The second stage of an attention whose keys are split: parts merged in order, and what is fused to the result.

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
from ..lane_places import divisible
from ..matmul.outputs import Outputs
from ..thread_values import ThreadValues
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
    total = p.batches * p.m * vectors
    stage = kernel.stage(THREADS, (dims.ceildiv(total, THREADS), 1, 1))
    b = stage.b
    b.bind("flat", stage.global_thread())
    flat = dims.symbol("flat")
    line = b.bind("line", b.dim(dims.floordiv(flat, vectors)))
    b.bind("batch", b.dim(dims.floordiv(line, p.m)))
    b.bind("row", b.dim(dims.mod(line, p.m)))
    b.bind("w", b.dim(dims.mod(flat, vectors)))
    softmax = Softmax(b, attention.scale, replace(QUADS, functions=functions), exact=exact)
    merge = _Merge(stage, attention, tiles, parts, softmax, width)

    def inside() -> list[ir.Value]:
        merge.emit()
        return []

    less = b.compare("slt", flat, total)
    b.branch(less, [], inside)
    stage.finish()


class _Merge:
    """What a thread computes: vector `w` of row `row` of batch `batch`, which is line `line` of all."""

    def __init__(
        self, stage: GpuStage, attention: Attention, tiles: Tiles, parts: tuple[int, int, int], softmax: Softmax,
        width: int,
    ):  # fmt: skip
        self.stage, self.b, self.attention, self.tiles, self.softmax = stage, stage.b, attention, tiles, softmax
        self.width, f32 = width, stage.b.f32
        self.type = ir.VectorType.get([width], f32) if width > 1 else f32
        self.outputs, self.tops, self.totals = (stage.scratch[x] for x in parts)

    def emit(self) -> None:
        """Read all parts in order, and write the outputs."""
        p, b, softmax, splits = self.attention.product, self.b, self.softmax, self.tiles.splits
        vectors = dims.floordiv(p.n, self.width)
        values = ThreadValues(self.stage, Ranges({"batch": p.batches, "row": p.m, "w": vectors}), self.width)

        def part(number: Dim, state: list[ir.Value]) -> list[ir.Value]:
            return self._add(values, number, state)

        zero = softmax.constant(0.0)
        state = [softmax.constant(-inf), zero, self._spread(zero)]
        if isinstance(splits, int):  # in one piece: the loads of all parts are under way together
            for number in range(splits):
                state = part(number, state)
        else:
            state = b.loop_carried("part", 0, splits, state, part)
        top, total, out = state
        value = b.value("arith.mulf", (out, self._spread(softmax.inverse(total))), self.type)
        lse = self.attention.root.results[1]
        for result, buffer in zip(self.stage.kernel.graph.results, self.stage.outputs):
            if result == lse:
                _store_lse(self.stage, buffer, softmax.lse(top, total))
        outputs = Outputs(self.stage, p, apart=lse)
        if outputs.halves:
            narrow = ir.VectorType.get([self.width], outputs.element) if self.width > 1 else outputs.element
            value = b.value("arith.truncf", (value,), narrow)
        batch, row, w = map(dims.symbol, ("batch", "row", "w"))
        outputs.write(values, batch, row, w, value)

    def _add(self, values: ThreadValues, number: Dim, state: list[ir.Value]) -> list[ir.Value]:
        """The maximum, total and output with part `number`."""
        p, b, softmax = self.attention.product, self.b, self.softmax
        top, total, out = state
        at = number * p.batches * p.m + dims.symbol("line")
        own = self._load(self.tops, at)
        most = softmax.maximum(top, own)
        base = softmax.base(most)
        old, new = (softmax.exponential(x, base) for x in (top, own))
        total = b.value("math.fma", (total, old, softmax.binary("mulf", self._load(self.totals, at), new)), b.f32)
        place = at * self.tiles.depth + values.flat(dims.symbol("w"))
        added = b.value("arith.mulf", (values.load_at(self.outputs, place), self._spread(new)), self.type)
        return [most, total, b.value("math.fma", (out, self._spread(old), added), self.type)]

    def _load(self, buffer: ir.Value, at: Dim) -> ir.Value:
        return self.b.value("memref.load", (buffer, self.b.dim(at)), self.b.f32)

    def _spread(self, x: ir.Value) -> ir.Value:
        return self.b.value("vector.broadcast", (x,), self.type) if self.width > 1 else x


def _store_lse(stage: GpuStage, buffer: ir.Value, value: ir.Value) -> None:
    """By the thread that has the row's first columns."""
    b = stage.b

    def store() -> list[ir.Value]:
        b.op("memref.store", (value, buffer, b.dim(dims.symbol("line"))))
        return []

    first = b.compare("eq", dims.symbol("w"), 0)
    b.branch(first, [], store)
