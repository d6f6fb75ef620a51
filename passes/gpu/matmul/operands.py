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
from ..gpu_kernel import GpuKernel, GpuStage
from ..hopper.ptx import round_up
from ..hopper.tma import Matrix, readable
from ..hopper.wgmma import ROW_BYTES
from .conv_product import PatchRows
from .copy_stages import Copy, emit_copy, emit_turn, lies_along_rows
from .patch_rows import emit_patch_rows
from .problem import Product, Side, Strides

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
    along_rows = may_turn and not short and lies_along_rows(kernel, product, side, rows)
    turned = along_rows and size == 2
    inner, outer = (rows, product.k) if turned else (product.k, rows)
    batches = product.batches if side.batch else 1
    pitch = round_up(inner, unit)
    element = ir.RankedTensorType(side.value.type).element_type
    number = kernel.new_scratch(element, len(planes) * batches * outer * pitch)
    if short:
        assert isinstance(side, PatchRows) and isinstance(product.k, int)
        emit_patch_rows(kernel, side, rows, product.k, number)
    else:
        copy = Copy(kernel, side, batches, outer, inner, number, len(planes), turned)
        (emit_turn if along_rows and size == 4 else emit_copy)(copy)
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
