"""Operand tiles of warpgroup products in shared memory, and who holds which element of the sums.

A tile is stored in rows of 128 bytes with the 128-byte swizzle of the copy engine (16-byte chunk `c` of row `r` lies at
chunk `c xor (r mod 8)`), or of 64 bytes with the 64-byte swizzle (at `c xor (r / 2 mod 4)`), in one of two ways (PTX ISA,
"Shared memory layout" of wgmma; E elements in a row):

    K-major    row r of the tile holds E elements along K; 8 rows are an atom of the swizzle, one after another
    turned     columns of E elements along M or N: a block of K rows for each; blocks one after another

A step of 32 bytes along K is 32 bytes on in a K-major tile, and 16 rows (2048 bytes) on in a turned one (16-bit only).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from mlir import ir

from ....dialects import dims
from ....dialects.dims import Dim
from .ptx import Ptx

ROW_BYTES = 128
STEP_BYTES = 32  # along K, of one product
TURNED_STEP_BYTES = 16 * ROW_BYTES
ATOM_ROWS = 8
ATOM_BYTES = ATOM_ROWS * ROW_BYTES  # of the swizzle
DTYPE_BYTES = {"bf16": 2, "f16": 2, "tf32": 4, "e4m3": 1, "e5m2": 1}
SWIZZLE_128 = 1 << 62
_SWIZZLES = {128: SWIZZLE_128, 64: -(1 << 63)}  # by the bytes of a row: 1 and 2 in the descriptor's two highest bits


@dataclass(frozen=True)
class SharedTile:
    """A tile of `rows` (along M or N) by 128 or 64 bytes along K; `turned` if it lies K by rows, always of 128.

    Only the first `used` rows are copied; what lies in the others shows in sums that nobody reads.
    """

    rows: int
    dtype: str
    turned: bool
    used: int
    row_bytes: int = ROW_BYTES

    @property
    def depth(self) -> int:
        """Elements along K."""
        return self.row_bytes // DTYPE_BYTES[self.dtype]

    @property
    def bytes(self) -> int:
        return self.rows * self.row_bytes

    @property
    def steps(self) -> int:
        """Products along K."""
        return self.row_bytes // STEP_BYTES

    @property
    def box(self) -> tuple[int, int]:
        """What one bulk copy brings, in elements, innermost first."""
        return (self.depth, self.depth if self.turned else self.used)

    def boxes(self) -> list[tuple[int, int]]:
        """(row, byte) at which each bulk copy of the tile starts."""
        return [(r, r * self.row_bytes) for r in range(0, self.used, self.box[1])]

    @property
    def copied_bytes(self) -> int:
        """What the bulk copies write."""
        return len(self.boxes()) * self.box[1] * self.row_bytes

    def descriptor_bits(self) -> int:
        """The descriptor of wgmma without its address: layout, and the strides between swizzle atoms and blocks."""
        stride = (ATOM_ROWS * self.row_bytes >> 4) << 32
        leading = self.depth * self.row_bytes >> 4 if self.turned else 1
        return _SWIZZLES[self.row_bytes] | stride | leading << 16

    def offset(self, row: int, step: int) -> int:
        """Bytes from the tile's start to where a product reads: rows from `row` (a multiple of 64) on, at a step along K."""
        if self.turned:
            return row * self.row_bytes + step * TURNED_STEP_BYTES
        return row * self.row_bytes + step * STEP_BYTES


class Described(Protocol):
    """A tile that products read."""

    def descriptor_bits(self) -> int:
        """The descriptor of wgmma without its address."""
        ...

    def offset(self, row: int, step: int) -> int:
        """Bytes from the tile's start to where a product reads."""
        ...


class Descriptors:
    """The descriptors of a tile that lies at a byte of dynamic shared memory, which may vary."""

    def __init__(self, ptx: Ptx, tile: Described):
        b = ptx.b
        self.ptx, self.tile = ptx, tile
        address = b.value("arith.extui", (ptx.shared_number(),), b.i64)
        units = b.value("arith.shrui", (address, b.constant(4, b.i64)), b.i64)
        self.base = b.value("arith.ori", (units, b.constant(tile.descriptor_bits(), b.i64)), b.i64)

    def start(self, byte: Dim) -> ir.Value:
        """The descriptor of a tile at `byte`, a multiple of 1024."""
        b = self.ptx.b
        units = self.ptx.i32(dims.floordiv(byte, 16))
        return b.value("arith.addi", (self.base, b.value("arith.extui", (units,), b.i64)), b.i64)

    def at(self, start: ir.Value, row: int, step: int) -> ir.Value:
        """The descriptor for a product on rows from `row` on, at a step along K."""
        b, units = self.ptx.b, self.tile.offset(row, step) >> 4
        return b.value("arith.addi", (start, b.constant(units, b.i64)), b.i64) if units else start


def zeros(ptx: Ptx, n: int) -> ir.Value:
    """Sums of 64 x n, half of n in each thread, as zeros."""
    return ptx.pack([ptx.b.constant(0.0, ptx.b.f32)] * (n // 2))


def undefined(ptx: Ptx, n: int) -> ir.Value:
    """Room for sums of 64 x n that a first product overwrites."""
    return ptx.b.value("llvm.mlir.undef", (), ptx.struct([ptx.b.f32] * (n // 2)))


def position(thread: int, number: int) -> tuple[int, int]:
    """Row and column of sum `number` of a thread of the warpgroup (PTX ISA, accumulator of wgmma m64nNk16)."""
    warp, lane = divmod(thread, 32)
    row = 16 * warp + lane // 4 + 8 * (number // 2 % 2)
    return row, 8 * (number // 4) + 2 * (lane % 4) + number % 2
