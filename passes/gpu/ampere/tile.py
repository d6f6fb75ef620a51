"""Rows of a matrix in shared memory: written by copies of 16 bytes, read as 8 x 8 matrices.

Rows of `depth` 16-bit elements (a multiple of 64) lie side by side, and their lines of 16 bytes trade places: line `c` of
row `r` is at `c xor (r mod 8)`. So eight rows have their lines of one column in all 32 banks.

    line of a row   0   1   2   3 …             `left`    16 x 16 of rows by columns, the left operand of a product
    row 0           0   1   2   3               `right`   two operands 16 x 8 of a product that sums over columns: 16 rows
    row 1           1   0   3   2               `turned`  two operands 16 x 8 of one that sums over rows: 16 columns
    row 2           2   3   0   1
"""

from __future__ import annotations

from mlir import ir

from ....dialects import dims
from ....dialects.dims import Dim
from ..hopper.ptx import Ptx
from ..hopper.tma import Matrix
from .warp import LINE, Warp

BANKS = 8  # lines of all banks
ELEMENTS = 8  # of a line


class Tile:
    """`rows` rows from byte `first` of dynamic shared memory on, filled from `matrix` in `buffer`.

    Of the symbols, `thread` counts in the block and `in_warp` in the warp.
    """

    def __init__(self, warp: Warp, ptx: Ptx, first: int, rows: int, depth: int, matrix: Matrix, buffer: ir.Value):
        self.warp, self.ptx, self.b = warp, ptx, warp.b
        self.first, self.rows, self.pitch = first, rows, 2 * depth
        self.matrix, self.buffer = matrix, buffer
        self.lines, threads = depth // ELEMENTS, warp.stage.threads
        self.step = threads // self.lines  # rows that the block copies at once
        thread = dims.symbol("thread")
        self.own_row, self.own_line = dims.floordiv(thread, self.lines), dims.mod(thread, self.lines)
        count = max(1, BANKS // self.step)
        self.targets = [self.address(self.own_row + i * self.step, self.own_line) for i in range(count)]

    @property
    def bytes(self) -> int:
        return self.rows * self.pitch

    def address(self, row: Dim, line: Dim, number: int = 0) -> ir.Value:
        """Where line `line + number` of a row lies; `line` is 0 or 1 beside a number."""
        b = self.b
        with b.at_level(0):
            place = b.value("arith.xori", (b.dim(line), b.dim(dims.mod(row, BANKS))), b.index)
            if number:
                place = b.value("arith.xori", (place, b.constant(number, b.index)), b.index)
            return self.ptx.shared(self.first + row * self.pitch + LINE * b.bind_unique("line", place))

    # -- copies ----------------------------------------------------------------------------------------------------
    def fill(self, batch: Dim, row: Dim, edge: bool) -> None:
        """Begin to copy the rows from `row` on; at an `edge` some may be beyond the last one, and become zeros."""
        b, m = self.b, self.matrix
        first = b.bind_unique("first", b.dim(m.element(batch, row + self.own_row, ELEMENTS * self.own_line)))
        checked = edge and not (isinstance(m.rows, int) and m.rows % self.rows == 0)
        start = self.warp.source(self.buffer, first)
        for i in range(self.rows // self.step):
            turn = i % len(self.targets)
            target = self.warp.behind(self.targets[turn], (i - turn) * self.step * self.pitch)
            down = i * self.step * m.row_stride
            source = (
                self.warp.behind(start, down * m.bytes)
                if isinstance(down, int)
                else self.warp.source(self.buffer, first + down)
            )
            self.warp.copy(target, source, self._valid(row + self.own_row + i * self.step if checked else None))

    def _valid(self, row: Dim | None) -> ir.Value | None:
        """The bytes of a line that are in the matrix; None: all."""
        b, m = self.b, self.matrix
        there: ir.Value | None = None
        if not (isinstance(m.k, int) and m.k * 2 == self.pitch):
            rest = dims.dim_max(dims.dim_min(2 * (m.k - ELEMENTS * self.own_line), LINE), 0)
            there = self.ptx.i32(b.dim(rest))
        if row is None:
            return there
        whole = b.constant(LINE, b.i32) if there is None else there
        return b.value("arith.select", (self.ptx.compare("slt", row, m.rows), whole, b.constant(0, b.i32)), b.i32)

    # -- operands --------------------------------------------------------------------------------------------------
    def left(self, row: Dim) -> Reader:
        """Left operands, 16 x 16, of the rows from `row` on."""
        lane = dims.symbol("in_warp")
        return Reader(self, row + dims.mod(lane, 16), dims.floordiv(lane, 16))

    def right(self) -> Reader:
        """Two right operands of 16 rows: k is along the columns."""
        lane = dims.symbol("in_warp")
        return Reader(self, dims.mod(lane, 8) + 8 * dims.floordiv(lane, 16), dims.mod(dims.floordiv(lane, 8), 2))

    def turned(self) -> Reader:
        """Two right operands of 16 columns: k is along the rows."""
        lane = dims.symbol("in_warp")
        return Reader(self, dims.mod(lane, 16), dims.floordiv(lane, 16), turned=True)


class Reader:
    """Reads four 8 x 8 matrices at a time; a lane's address is one of four and a constant."""

    def __init__(self, tile: Tile, row: Dim, line: Dim, turned: bool = False):
        self.tile, self.is_turned = tile, turned
        self.addresses = [tile.address(row, line, number) for number in range(0, BANKS, 2)]

    def at(self, row: int, column: int) -> list[ir.Value]:
        """The operands from `row` (a multiple of 8) and `column` (of 16) on."""
        tile = self.tile
        high, low = divmod(column // ELEMENTS, BANKS)
        address = tile.warp.behind(self.addresses[low // 2], row * tile.pitch + high * BANKS * LINE)
        return tile.warp.matrices(address, 4, self.is_turned)
