"""Operands as the copy engine can read them: inputs where they lie, or copies in scratch memory.

An input that is a view with a descriptor (`hopper/tma`) is read in place. Everything else is written to scratch memory by a
stage before: what the kernel computes (a fused cast, an activation), short patches (`patch_rows`), rows with a pitch that
is not a multiple of 16 bytes, and f32, which tensor cores do not have: it is split into planes of TF32,

    high = tf32(x)      high' = high, or 0 where x is not finite      low = tf32(x - high), or 0 likewise
    a * b = high_a * high_b + high'_a * low_b + low_a * high'_b        (what is left out is below 2**-22)

so that infinities and NaN enter through one product only, as in a plain f32 product. Where a product may be in TF32,
f32 is read in place, K by columns, and rounded on its way: by the copy engine, or by who reads it from shared memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mlir import ir

from ....dialects import dims
from ....dialects.dims import Dim
from ....dialects.dtypes import FLOAT8
from ....dialects.families.channels_last_conv import LONGEST_PATCH
from ...loops.index_algebra import Ranges
from ..gpu_kernel import GpuKernel, GpuStage
from ..hopper.ptx import round_up
from ..hopper.tma import Matrix, readable
from ..hopper.wgmma import ROW_BYTES
from ..lane_places import LANE, divisible
from ..loops.stored import Stored
from ..probe import Probe
from ..thread_values import ThreadValues
from .conv_product import PatchRows
from .patch_rows import emit_patch_rows
from .problem import Product, Side, Strides

THREADS = 256
TURN = 32  # rows and columns of a tile that is turned
A_PLANES, B_PLANES = (1, 2, 0), (2, 1, 0)  # of high, high' and low: what each pass over K reads; small terms first
_TYPES = {"bf16": ("bf16", 2), "f16": ("f16", 2), "f32": ("tf32", 4)}  # of descriptors, and bytes
_TYPES |= dict.fromkeys(FLOAT8, ("u8", 1))


@dataclass(frozen=True)
class Operand:
    """A matrix and where it lies: an input of the kernel, or a scratch buffer's number.

    With `planes` there are several matrices one after another; pass `p` over K reads number `planes[p]`, which is the
    matrices of `batches` products (1: all products share it).
    """

    matrix: Matrix
    source: ir.Value | int
    planes: tuple[int, ...] = (0,)
    batches: Dim = 1

    def role(self, stage: GpuStage) -> str:
        if isinstance(self.source, int):
            return f"scratch:{self.source}"
        return stage.buffer_role(stage.inputs[self.source])

    @property
    def turned(self) -> bool:
        """True if it lies K by rows."""
        return self.matrix.turned

    def blocks(self, k: Dim, depth: int) -> Dim:
        """Blocks of `depth` elements along K, of a pass."""
        return dims.ceildiv(k, depth)

    def entry(self, base: str, box: Sequence[int], swizzle: int = ROW_BYTES) -> dict[str, Any]:
        """The descriptor's data (docs/contracts.md, section 11); `box` is of the two inner dimensions."""
        return self.matrix.entry(base, box, swizzle)

    @property
    def run(self) -> Dim:
        """Elements of a row that blocks along K divide."""
        return self.matrix.k

    def place(self, batch: Dim, block: Dim, blocks: Dim) -> tuple[Dim, Dim]:
        """Which matrix block number `block` of K is of, of `blocks` a pass, and which block it is there."""
        if len(self.planes) == 1:
            return batch, block
        number, block = dims.floordiv(block, blocks), dims.mod(block, blocks)
        assert self.planes in ((1, 2, 0), (2, 1, 0))
        plane = dims.mod(number + 1, 3) if self.planes[0] == 1 else 2 - number
        return plane * self.batches + (batch if self.batches != 1 else 0), block

    def coordinates(self, batch: Dim, row: Dim, block: Dim, depth: int, blocks: Dim) -> list[Dim]:
        """Where the copy of block number `block` of K begins, of `blocks` a pass with `depth` elements each."""
        batch, block = self.place(batch, block, blocks)
        return self.matrix.coordinates(batch, row, depth * block)

    def offsets(self, block: Dim, depth: int) -> list[Dim]:
        """What else such a copy adds to its coordinates, in im2col mode only."""
        return []


def place_operands(kernel: GpuKernel, product: Product) -> tuple[Operand, Operand]:
    """Both operands, with the stages that copy them where they are not read in place."""
    return (
        place_operand(kernel, product, product.a, product.m, A_PLANES),
        place_operand(kernel, product, product.b, product.n, B_PLANES),
    )


def place_operand(
    kernel: GpuKernel, product: Product, side: Side, rows: Dim, planes: tuple[int, ...] = (0,), may_turn: bool = True
) -> Operand:
    """An operand where it lies or as a copy, in `planes` if it is of f32; K is innermost unless it `may_turn`."""
    split = product.is_split
    found = None if split else in_place(product, side, rows, may_turn)
    return found or _copied(kernel, product, side, rows, planes if split else (0,), may_turn)


def in_place(product: Product, side: Side, rows: Dim, may_turn: bool = True) -> Operand | None:
    """The operand where it lies, if the copy engine can read it there."""
    strides = side.strides()
    return None if strides is None else matrix_in_place(product, side, strides, rows, may_turn)


def matrix_in_place(product: Product, side: Side, strides: Strides, rows: Dim, may_turn: bool = True) -> Operand | None:
    """The operand whose elements lie at `strides`, if the copy engine can read it there."""
    stored = str(ir.RankedTensorType(strides.base.type).element_type)
    if stored != _dtype(side):
        return None
    type, size = _TYPES[stored]
    may_turn = may_turn and size == 2  # tensor cores take turned tiles of 16-bit elements only
    s = strides
    matrix = readable(Matrix(s.offset, s.batch, s.batch_strides, rows, product.k, s.row, s.k, type, size), may_turn)
    return None if matrix is None else Operand(matrix, s.base)


def _copied(
    kernel: GpuKernel, product: Product, side: Side, rows: Dim, planes: tuple[int, ...], may_turn: bool
) -> Operand:
    """The operand in scratch memory, and the stage that writes it."""
    type, size = _TYPES[_dtype(side)]
    unit = 16 // size
    short = isinstance(side, PatchRows) and size == 2 and isinstance(product.k, int) and product.k <= LONGEST_PATCH
    along_rows = may_turn and not short and _along_rows(kernel, product, side, rows)
    turned = along_rows and size == 2
    inner, outer = (rows, product.k) if turned else (product.k, rows)
    batches = product.batches if side.batch else 1
    pitch = round_up(inner, unit)
    element = ir.RankedTensorType(side.value.type).element_type
    number = kernel.new_scratch(element, len(planes) * batches * outer * pitch)
    sizes = (batches, outer, inner)
    if short:
        assert isinstance(side, PatchRows) and isinstance(product.k, int)
        emit_patch_rows(kernel, side, rows, product.k, number)
    elif along_rows and size == 4:
        _emit_turn(kernel, product, side, sizes, number, len(planes))
    else:
        _emit_copy(kernel, product, side, sizes, turned, number, len(planes))
    batch: tuple[Dim, ...] = (batches,) if batches != 1 else ()
    batch_strides: tuple[Dim, ...] = (outer * pitch,) if batches != 1 else ()
    if len(planes) > 1:
        # planes and batches are one dimension; an operand without a batch of its own has planes only
        batch, batch_strides = (len(planes) * batches,), (outer * pitch,)
    row_stride, k_stride = (1, pitch) if turned else (pitch, 1)
    # patches are filled up with zeros, and rows of whole vectors are copied faster
    k = pitch if short else product.k
    matrix = Matrix(0, batch, batch_strides, rows, k, row_stride, k_stride, type, size, turned)
    return Operand(matrix, number, planes, batches)


def _dtype(side: Side) -> str:
    """The type of an operand's elements."""
    return str(ir.RankedTensorType(side.value.type).element_type)


def _along_rows(kernel: GpuKernel, product: Product, side: Side, rows: Dim) -> bool:
    """True if the operand's neighbours in memory are neighbours along M or N, not along K."""
    if not side.vectors:  # patches of an image: neighbouring positions read neighbouring elements
        return True
    width = 8
    for turned in (False, True):
        inner, outer = (rows, product.k) if turned else (product.k, rows)
        ranges = Ranges({"outer": outer, "w": dims.floordiv(inner, width), LANE: width, "batch": product.batches})
        probe = Probe(kernel.graph, ranges, set())
        _value(probe, side, turned, width * dims.symbol("w") + dims.symbol(LANE))
        steps = [dims.linear_coefficient(offset, LANE) for _, offset in probe.loads]
        if all(s in (0, 1) for s in steps):
            return turned
    return False


def _value(ev: ThreadValues | Probe, side: Side, turned: bool, inner: Dim) -> ir.Value:
    """The operand's element at symbols `batch` and `outer` and position `inner`."""
    outer = dims.symbol("outer")
    row, k = (inner, outer) if turned else (outer, inner)
    return side.at(ev, dims.symbol("batch"), row, k)


def _emit_copy(
    kernel: GpuKernel, product: Product, side: Side, sizes: tuple[Dim, Dim, Dim], turned: bool, number: int, planes: int
) -> None:
    """A thread writes one vector of 16 bytes, or the last elements of a row one by one."""
    batches, outer, inner = sizes
    bytes = _TYPES[_dtype(side)][1]
    width = 16 // bytes if side.vectors else 1
    vectors, total = dims.ceildiv(inner, width), batches * outer * dims.ceildiv(inner, width)
    stage = kernel.stage(THREADS, (dims.ceildiv(total, THREADS), 1, 1))
    b = stage.b
    b.bind("flat", stage.global_thread())
    flat = dims.symbol("flat")
    row_of_all = dims.floordiv(flat, vectors)
    b.bind("batch", b.dim(dims.floordiv(row_of_all, outer)))
    b.bind("outer", b.dim(dims.mod(row_of_all, outer)))
    b.bind("w", b.dim(dims.mod(flat, vectors)))
    pitch, w = round_up(inner, 16 // bytes), dims.symbol("w")
    start = (dims.symbol("batch") * outer + dims.symbol("outer")) * pitch
    plane_size = batches * outer * pitch

    def write(ev: ThreadValues, position: Dim) -> None:
        value = _value(ev, side, turned, position)
        made = _planes(ev, value)[:planes] if bytes == 4 else [value]
        for i, part in enumerate(made):
            ev.store(stage.scratch[number], i * plane_size + start + position, part)

    def whole() -> list[ir.Value]:
        ranges = Ranges({"batch": batches, "outer": outer, "w": dims.floordiv(inner, width)})
        ev = Stored().evaluator(stage, ranges, width)
        write(ev, ev.flat(w))
        return []

    def rest() -> list[ir.Value]:
        with b.loop("tail", width * w, b.dim(inner)) as position:
            ranges = Ranges({"batch": batches, "outer": outer, "tail": inner})
            write(Stored().evaluator(stage, ranges, 1), position)
        return []

    def inside() -> list[ir.Value]:
        if divisible(inner, width):
            return whole()
        full = stage.b.compare("slt", width * w + (width - 1), inner)
        b.branch(full, [], whole, rest)
        return []

    b.branch(stage.b.compare("slt", flat, total), [], inside)
    stage.finish()


def _emit_turn(
    kernel: GpuKernel, product: Product, side: Side, sizes: tuple[Dim, Dim, Dim], number: int, planes: int
) -> None:
    """The same for f32 whose rows lie side by side in memory, through a tile of shared memory: both sides are vectors."""
    batches, rows, k = sizes
    side_of_tile, across = TURN, THREADS // TURN
    row_tiles, k_tiles = dims.ceildiv(rows, side_of_tile), dims.ceildiv(k, side_of_tile)
    stage = kernel.stage(THREADS, (row_tiles * k_tiles * batches, 1, 1))
    b = stage.b
    tile = stage.shared(b.f32, side_of_tile * (side_of_tile + 1))
    b.bind("thread", stage.thread())
    b.bind("block", stage.block())
    thread, block = dims.symbol("thread"), dims.symbol("block")
    b.bind("batch", b.dim(dims.floordiv(block, row_tiles * k_tiles)))
    first_row = side_of_tile * dims.mod(block, row_tiles)
    first_k = side_of_tile * dims.mod(dims.floordiv(block, row_tiles), k_tiles)
    b.bind("outer", b.dim(first_row + dims.mod(thread, side_of_tile)))
    exists = stage.b.compare("slt", dims.symbol("outer"), rows)
    read_values = []  # all of them before the first store: no load moves up past one
    for turn in range(side_of_tile // across):
        place = dims.floordiv(thread, side_of_tile) + across * turn
        at = b.bind_unique("k", b.dim(first_k + place))

        def read(at: Dim = at) -> list[ir.Value]:
            ranges = Ranges({"batch": batches, "outer": rows, str(at): k})
            return [_value(ThreadValues(stage, ranges, 1), side, False, at)]

        inside = b.value("arith.andi", (exists, stage.b.compare("slt", at, k)), b.i1)
        value = b.branch(inside, [b.f32], read, lambda: [b.constant(0.0, b.f32)])[0]
        read_values.append((value, place * (side_of_tile + 1) + dims.mod(thread, side_of_tile)))
    for value, offset in read_values:
        b.op("memref.store", (value, tile, b.dim(offset)))
    stage.barrier()
    vectors, pitch = side_of_tile // 4, round_up(k, 4)
    row, depth = dims.floordiv(thread, vectors), 4 * dims.mod(thread, vectors)

    def write() -> list[ir.Value]:
        parts = [b.value("memref.load", (tile, b.dim((depth + j) * (side_of_tile + 1) + row)), b.f32) for j in range(4)]
        ev = ThreadValues(stage, Ranges({"batch": batches}), 4)
        value = b.value("vector.from_elements", parts, ir.VectorType.get([4], b.f32))
        start = b.bind_unique(
            "w", b.dim(dims.floordiv((dims.symbol("batch") * rows + first_row + row) * pitch + first_k + depth, 4))
        )
        for i, part in enumerate(_planes(ev, value)[:planes]):
            ev.store(stage.scratch[number], i * batches * rows * pitch + ev.flat(start), part)
        return []

    inside = b.value(
        "arith.andi", (stage.b.compare("slt", first_row + row, rows), stage.b.compare("slt", first_k + depth, k)), b.i1
    )
    b.branch(inside, [], write)
    stage.finish()


def _planes(ev: ThreadValues, value: ir.Value) -> list[ir.Value]:
    """`high`, `high'` and `low` of f32 values (see above), rounded to the 10 fraction bits of TF32."""
    b = ev.b
    value = ev.vector(value)
    vector = isinstance(value.type, ir.VectorType)
    like = lambda t: ir.VectorType.get(ir.VectorType(value.type).shape, t) if vector else t
    i32, f32 = like(b.i32), like(b.f32)
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
