"""Pack B for the register tile: panels `[ceil(N / NR)][K][NR]` in the compute dtype, padded with zeros.

    packed[p][k][c] = B[k, p * NR + c]   (0 where p * NR + c >= N)

Rows of B with unit stride are copied by vectors; a transposed B (unit stride along K: a linear layer's weight) goes
through square blocks transposed in registers; other strides element by element. What the kernel computes (`computed`) is
evaluated instead of loaded, on the same three ways.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from mlir import ir

from . import numeric
from .code import Code, Index
from .computed import Computed
from .micro import Tile
from .transpose import transpose

ROWS = 4  # rows of B at a time: 86 % of the FMA peak at 128 x 768 x 3072, against 81 % with all of K at a time


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

    @property
    def rows_in_place(self) -> bool:
        """True if a row, along N, has unit stride."""
        return isinstance(self.n_stride, int) and self.n_stride == 1

    @property
    def columns_in_place(self) -> bool:
        """True if a column, along K, has unit stride."""
        return isinstance(self.k_stride, int) and self.k_stride == 1

    def row(self, code: Code, k: Index, n: Index, width: int) -> ir.Value:
        """Elements (k, n), (k, n + 1) ... as a vector; rows must be in place."""
        return code.vload(self.buffer, self.at(code, k, n), width)

    def column(self, code: Code, k: Index, n: Index, width: int) -> ir.Value:
        """Elements (k, n), (k + 1, n) ... as a vector; columns must be in place."""
        return code.vload(self.buffer, self.at(code, k, n), width)

    def element(self, code: Code, k: Index, n: Index) -> ir.Value:
        """Element (k, n)."""
        return code.load(self.buffer, self.at(code, k, n))


@dataclass(frozen=True)
class PanelSource:
    """Rows `low .. high` of columns `first .. first + columns` of `b`, which go to the panel at `out[at]`."""

    b: Matrix | Computed
    low: Index
    high: Index
    first: Index
    columns: Index  # at most the tile's
    out: ir.Value
    at: Index


def pack_panels(
    code: Code,
    tile: Tile,
    b: Matrix | Computed,
    k_size: Index,
    n_size: Index,
    first: Index,
    panels: Index,
    out: ir.Value,
    place: tuple[Index, Index] | None = None,
) -> None:
    """Pack the panels of `b` that begin at columns `first`, `first + tile.columns`, ... (below `n_size`) to `out`.

    With `place` they are lines from `place[0]` on of panels of `place[1]` lines.

    Rows of B with unit stride are walked a few at a time over all panels: along memory, as prefetchers like it.
    """

    line, lines = place or (0, k_size)

    def block(low: Index, high: Index) -> None:
        def panel(j: Index) -> None:
            column = code.add(first, code.mul(j, tile.columns))
            ragged = not isinstance(n_size, int) or n_size % tile.columns
            count = code.min(tile.columns, code.sub(n_size, column)) if ragged else tile.columns
            at = code.mul(code.add(code.mul(j, lines), line), tile.columns)
            pack_panel(code, tile, PanelSource(b, low, high, column, count, out, at))

        code.loop(0, panels, 1, [], panel)

    if not b.rows_in_place:
        block(0, k_size)
        return
    whole = code.mul(code.div(k_size, ROWS), ROWS)
    code.loop(0, whole, ROWS, [], lambda k: block(k, code.add(k, ROWS)))
    if not (isinstance(k_size, int) and k_size == whole):
        block(whole, k_size)


def pack_panel(code: Code, tile: Tile, panel: PanelSource) -> None:
    """Pack `panel`, padded with zeros to the tile's columns."""
    full = replace(panel, columns=tile.columns)

    def whole() -> None:
        if panel.b.rows_in_place:
            _copy_rows(code, tile, full)
        elif panel.b.columns_in_place:
            _copy_transposed(code, tile, full)
        else:
            _copy_elements(code, tile, full)

    def ragged() -> None:
        _copy_elements(code, tile, panel)

    if isinstance(panel.columns, int):
        (whole if panel.columns == tile.columns else ragged)()
    else:
        code.branch(code.compare("eq", panel.columns, tile.columns), whole, ragged)


def _copy_rows(code: Code, tile: Tile, panel: PanelSource) -> None:
    def row(k: ir.Value) -> None:
        for q in range(tile.vectors):
            x = panel.b.row(code, k, code.add(panel.first, q * tile.width), tile.width)
            x = numeric.convert(code, x, panel.b.dtype, tile.dtype)
            code.vstore(x, panel.out, code.add(panel.at, code.mul(k, tile.columns), q * tile.width))

    code.loop(panel.low, panel.high, 1, [], row)


def _copy_transposed(code: Code, tile: Tile, panel: PanelSource) -> None:
    b, low, width = panel.b, panel.low, tile.width
    bits = 64 if tile.dtype in ("f64", "i64") else 32
    whole = code.add(low, code.mul(code.div(code.sub(panel.high, low), width), width))

    def block(k: ir.Value) -> None:
        for q in range(tile.vectors):
            rows = []
            for c in range(width):
                x = b.column(code, k, code.add(panel.first, q * width + c), width)
                rows.append(numeric.convert(code, x, b.dtype, tile.dtype))
            for i, column in enumerate(transpose(code, rows, bits)):
                at = code.add(panel.at, code.mul(code.add(k, i), tile.columns), q * width)
                code.vstore(column, panel.out, at)

    code.loop(low, whole, width, [], block)
    _copy_elements(code, tile, replace(panel, low=whole))


def _copy_elements(code: Code, tile: Tile, panel: PanelSource) -> None:
    b, out, columns = panel.b, panel.out, panel.columns
    zero = code.constant(0, numeric.element_type(tile.dtype))

    def row(k: ir.Value) -> None:
        to = code.add(panel.at, code.mul(k, tile.columns))

        def element(c: ir.Value) -> None:
            x = b.element(code, k, code.add(panel.first, c))
            code.store(numeric.convert(code, x, b.dtype, tile.dtype), out, code.add(to, c))

        code.loop(0, columns, 1, [], element)
        code.loop(columns, tile.columns, 1, [], lambda c: code.store(zero, out, code.add(to, c)))

    code.loop(panel.low, panel.high, 1, [], row)
