"""Pack B for the register tile: panels `[ceil(N / NR)][K][NR]` in the compute dtype, padded with zeros.

    packed[p][k][c] = B[k, p * NR + c]   (0 where p * NR + c >= N)

Rows of B with unit stride are copied by vectors; a transposed B (unit stride along K: a linear layer's weight) goes
through square blocks transposed in registers; other strides element by element.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlir import ir

from . import tiles_numeric as numeric
from .tiles_code import Code, Index
from .tiles_micro import Tile
from .tiles_transpose import transpose


@dataclass(frozen=True)
class Matrix:
    """A strided 2-D operand in memory: element (k, n) at `offset + k * k_stride + n * n_stride` of `buffer`."""

    buffer: ir.Value
    dtype: str
    offset: Index
    k_stride: Index
    n_stride: Index

    def at(self, code: Code, k: Index, n: Index) -> Index:
        """The flat offset of an element."""
        return code.add(self.offset, code.mul(k, self.k_stride), code.mul(n, self.n_stride))


def pack_panel(
    code: Code, tile: Tile, b: Matrix, k_size: Index, first: Index, columns: Index, out: ir.Value, at: Index
) -> None:
    """Pack columns `first .. first + columns` (at most `tile.columns`) of `b` to one panel at `out[at]`."""

    def full() -> None:
        if isinstance(b.n_stride, int) and b.n_stride == 1:
            _copy_rows(code, tile, b, k_size, first, out, at)
        elif isinstance(b.k_stride, int) and b.k_stride == 1:
            _copy_transposed(code, tile, b, k_size, first, out, at)
        else:
            _copy_elements(code, tile, b, 0, k_size, first, tile.columns, out, at)

    def ragged() -> None:
        _copy_elements(code, tile, b, 0, k_size, first, columns, out, at)

    if isinstance(columns, int):
        (full if columns == tile.columns else ragged)()
    else:
        code.branch(code.compare("eq", columns, tile.columns), full, ragged)


def _copy_rows(code: Code, tile: Tile, b: Matrix, k_size: Index, first: Index, out: ir.Value, at: Index) -> None:
    def row(k: ir.Value) -> None:
        for q in range(tile.vectors):
            x = code.vload(b.buffer, code.add(b.at(code, k, first), q * tile.width), tile.width)
            x = numeric.convert(code, x, b.dtype, tile.dtype)
            code.vstore(x, out, code.add(at, code.mul(k, tile.columns), q * tile.width))

    code.loop(0, k_size, 1, [], row)


def _copy_transposed(code: Code, tile: Tile, b: Matrix, k_size: Index, first: Index, out: ir.Value, at: Index) -> None:
    width = tile.width
    bits = 64 if tile.dtype in ("f64", "i64") else 32
    whole = code.mul(code.div(k_size, width), width)

    def block(k: ir.Value) -> None:
        for q in range(tile.vectors):
            rows = []
            for c in range(width):
                x = code.vload(b.buffer, b.at(code, k, code.add(first, q * width + c)), width)
                rows.append(numeric.convert(code, x, b.dtype, tile.dtype))
            for i, column in enumerate(transpose(code, rows, bits)):
                code.vstore(column, out, code.add(at, code.mul(code.add(k, i), tile.columns), q * width))

    code.loop(0, whole, width, [], block)
    _copy_elements(code, tile, b, whole, k_size, first, tile.columns, out, at)


def _copy_elements(
    code: Code, tile: Tile, b: Matrix, low: Index, high: Index, first: Index, columns: Index, out: ir.Value, at: Index
) -> None:
    zero = code.constant(0, numeric.element_type(tile.dtype))

    def row(k: ir.Value) -> None:
        to = code.add(at, code.mul(k, tile.columns))

        def element(c: ir.Value) -> None:
            x = code.load(b.buffer, b.at(code, k, code.add(first, c)))
            code.store(numeric.convert(code, x, b.dtype, tile.dtype), out, code.add(to, c))

        code.loop(0, columns, 1, [], element)
        code.loop(columns, tile.columns, 1, [], lambda c: code.store(zero, out, code.add(to, c)))

    code.loop(low, high, 1, [], row)
