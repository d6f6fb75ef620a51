"""Stages that copy an operand to scratch memory as the copy engine can read it: rows of whole vectors, planes of f32."""

from __future__ import annotations

from dataclasses import dataclass

from mlir import ir

from ....dialects import dims
from ....dialects.dims import Dim
from ...lane_types import like
from ...loops.index_algebra import Ranges
from ..gpu_kernel import GpuKernel, GpuStage, element_bytes
from ..hopper.ptx import round_up
from ..lane_places import LANE, divisible
from ..loops.stored import Stored
from ..probe import Probe
from ..thread_values import ThreadValues
from .problem import Product, Side

THREADS = 256
TURN = 32  # rows and columns of a tile that is turned
LINE = TURN + 1  # elements of one in shared memory: columns are in all banks


@dataclass(frozen=True)
class Copy:
    """`batches` matrices of `outer` rows of `inner` elements, of operand `side`, which go to scratch buffer `number`.

    Rows are along K, or, `turned`, along M or N. Of f32 there are so many `planes`, one matrix (or batch) after another.
    """

    kernel: GpuKernel
    side: Side
    batches: Dim
    outer: Dim
    inner: Dim
    number: int
    planes: int
    turned: bool = False

    @property
    def pitch(self) -> Dim:
        """Elements from a row to the next: whole vectors of 16 bytes."""
        return round_up(self.inner, 16 // self.bytes)

    @property
    def bytes(self) -> int:
        """Of an element."""
        return element_bytes(ir.RankedTensorType(self.side.value.type).element_type)

    def element(self, ev: ThreadValues | Probe, inner: Dim) -> ir.Value:
        """The operand's element at symbols `batch` and `outer` and position `inner`."""
        outer = dims.symbol("outer")
        row, k = (inner, outer) if self.turned else (outer, inner)
        return self.side.at(ev, dims.symbol("batch"), row, k)

    def store(self, ev: ThreadValues, at: Dim, value: ir.Value) -> None:
        """Write a value, or the planes of it, to element `at` of the first plane."""
        parts = tf32_planes(ev, value)[: self.planes] if self.bytes == 4 else [value]
        for i, part in enumerate(parts):
            ev.store(ev.stage.scratch[self.number], i * self.batches * self.outer * self.pitch + at, part)


def lies_along_rows(kernel: GpuKernel, product: Product, side: Side, rows: Dim) -> bool:
    """True if the operand's neighbours in memory are neighbours along M or N, not along K."""
    if not side.vectors:  # patches of an image: neighbouring positions read neighbouring elements
        return True
    width = 8
    for turned in (False, True):
        inner, outer = (rows, product.k) if turned else (product.k, rows)
        ranges = Ranges({"outer": outer, "w": dims.floordiv(inner, width), LANE: width, "batch": product.batches})
        probe = Probe(kernel.graph, ranges, set())
        copy = Copy(kernel, side, product.batches, outer, inner, 0, 1, turned)
        copy.element(probe, width * dims.symbol("w") + dims.symbol(LANE))
        steps = [dims.linear_coefficient(offset, LANE) for _, offset in probe.loads]
        if all(s in (0, 1) for s in steps):
            return turned
    return False


def emit_copy(copy: Copy) -> None:
    """A thread writes one vector of 16 bytes, or the last elements of a row one by one."""
    outer, inner = copy.outer, copy.inner
    width = 16 // copy.bytes if copy.side.vectors else 1
    vectors, total = dims.ceildiv(inner, width), copy.batches * outer * dims.ceildiv(inner, width)
    stage = copy.kernel.stage(THREADS, (dims.ceildiv(total, THREADS), 1, 1))
    b = stage.b
    b.bind("flat", stage.global_thread())
    flat, w = dims.symbol("flat"), dims.symbol("w")
    row_of_all = dims.floordiv(flat, vectors)
    b.bind("batch", b.dim(dims.floordiv(row_of_all, outer)))
    b.bind("outer", b.dim(dims.mod(row_of_all, outer)))
    b.bind("w", b.dim(dims.mod(flat, vectors)))
    start = (dims.symbol("batch") * outer + dims.symbol("outer")) * copy.pitch

    def write(position: str, extent: Dim, lanes: int) -> None:
        ranges = Ranges({"batch": copy.batches, "outer": outer, position: extent})
        ev = Stored().evaluator(stage, ranges, lanes)
        at = ev.flat(dims.symbol(position))
        copy.store(ev, start + at, copy.element(ev, at))

    def whole() -> list[ir.Value]:
        write("w", dims.floordiv(inner, width), width)
        return []

    def rest() -> list[ir.Value]:
        with b.loop("tail", width * w, b.dim(inner)):
            write("tail", inner, 1)
        return []

    def inside() -> list[ir.Value]:
        if divisible(inner, width):
            return whole()
        b.branch(b.compare("slt", width * w + (width - 1), inner), [], whole, rest)
        return []

    b.branch(b.compare("slt", flat, total), [], inside)
    stage.finish()


def emit_turn(copy: Copy) -> None:
    """The same for f32 whose rows lie side by side in memory, through a tile of shared memory: both sides are vectors."""
    rows, k = copy.outer, copy.inner
    row_tiles, k_tiles = dims.ceildiv(rows, TURN), dims.ceildiv(k, TURN)
    stage = copy.kernel.stage(THREADS, (row_tiles * k_tiles * copy.batches, 1, 1))
    b = stage.b
    tile = stage.shared(b.f32, TURN * LINE)
    b.bind("thread", stage.thread())
    b.bind("block", stage.block())
    block = dims.symbol("block")
    b.bind("batch", b.dim(dims.floordiv(block, row_tiles * k_tiles)))
    first_row = TURN * dims.mod(block, row_tiles)
    first_k = TURN * dims.mod(dims.floordiv(block, row_tiles), k_tiles)
    for value, offset in _read_tile(copy, stage, first_row, first_k):
        b.op("memref.store", (value, tile, b.dim(offset)))
    stage.barrier()
    _write_tile(copy, stage, tile, first_row, first_k)
    stage.finish()


def _read_tile(copy: Copy, stage: GpuStage, first_row: Dim, first_k: Dim) -> list[tuple[ir.Value, Dim]]:
    """A thread's elements of the tile and their places in it: all loads before a store, past which none moves up."""
    b, thread, across = stage.b, dims.symbol("thread"), THREADS // TURN
    b.bind("outer", b.dim(first_row + dims.mod(thread, TURN)))
    exists = b.compare("slt", dims.symbol("outer"), copy.outer)
    made = []
    for turn in range(TURN // across):
        place = dims.floordiv(thread, TURN) + across * turn
        at = b.bind_unique("k", b.dim(first_k + place))

        def read(at: Dim = at) -> list[ir.Value]:
            ranges = Ranges({"batch": copy.batches, "outer": copy.outer, str(at): copy.inner})
            return [copy.element(ThreadValues(stage, ranges, 1), at)]

        inside = b.all_of((exists, b.compare("slt", at, copy.inner)))
        value = b.branch(inside, [b.f32], read, lambda: [b.constant(0.0, b.f32)])[0]
        made.append((value, place * LINE + dims.mod(thread, TURN)))
    return made


def _write_tile(copy: Copy, stage: GpuStage, tile: ir.Value, first_row: Dim, first_k: Dim) -> None:
    """A vector of the tile along K, of a thread."""
    b, thread, vectors = stage.b, dims.symbol("thread"), TURN // 4
    row, depth = dims.floordiv(thread, vectors), 4 * dims.mod(thread, vectors)

    def write() -> list[ir.Value]:
        parts = [b.value("memref.load", (tile, b.dim((depth + j) * LINE + row)), b.f32) for j in range(4)]
        ev = ThreadValues(stage, Ranges({"batch": copy.batches}), 4)
        value = b.value("vector.from_elements", parts, ir.VectorType.get([4], b.f32))
        of_all = (dims.symbol("batch") * copy.outer + first_row + row) * copy.pitch + first_k + depth
        copy.store(ev, ev.flat(b.bind_unique("w", b.dim(dims.floordiv(of_all, 4)))), value)
        return []

    inside = (b.compare("slt", first_row + row, copy.outer), b.compare("slt", first_k + depth, copy.inner))
    b.branch(b.all_of(inside), [], write)


def tf32_planes(ev: ThreadValues, value: ir.Value) -> list[ir.Value]:
    """`high`, `high'` and `low` of f32 values (`operands.py`), rounded to the 10 fraction bits of TF32."""
    b = ev.b
    value = ev.vector(value)
    i32, f32 = like(value.type, b.i32), like(value.type, b.f32)
    number = lambda x: b.constant(x, i32)
    bits = b.value("arith.bitcast", (value,), i32)
    size = b.value("arith.andi", (bits, number(0x7FFFFFFF)), i32)
    below = lambda x: b.compare("ult", size, number(x))
    finite = below(0x7F800000)

    def cut(x: ir.Value) -> ir.Value:
        return b.value("arith.bitcast", (b.value("arith.andi", (x, number(-0x2000)), i32),), f32)

    rounded = cut(b.value("arith.addi", (bits, number(0x1000)), i32))
    quiet = b.value("arith.ori", (bits, number(0x400000)), i32)  # a NaN stays one without its low bits
    nan = b.compare("ugt", size, number(0x7F800000))
    kept = cut(b.select(nan, quiet, bits))
    high = b.select(below(0x7F7FF000), rounded, kept)  # beyond, rounding up would overflow
    zero = b.constant(0.0, f32)
    rest = b.value("arith.bitcast", (b.value("arith.subf", (value, high), f32),), i32)
    low = cut(b.value("arith.addi", (rest, number(0x1000)), i32))
    select = lambda x: b.select(finite, x, zero)
    return [high, select(high), select(low)]
