"""Rows of a matrix in shared memory: written by copies of 16 bytes, read as operands of `mma.sync`.

Rows of `depth` 16-bit elements (a multiple of 64) lie side by side, and their lines of 16 bytes trade places: line `c` of
row `r` is at `c xor (r mod 8)`. So eight rows have their lines of one column in all 32 banks.

    line of a row   0   1   2   3 …
    row 0           0   1   2   3
    row 1           1   0   3   2
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
        assert rows % self.step == 0, "rows that no thread copies"
        thread = dims.symbol("thread")
        self.own_row, self.own_line = dims.floordiv(thread, self.lines), dims.mod(thread, self.lines)
        count = max(1, BANKS // self.step)
        self.targets = [
            line_address(ptx, self.pitch, self.own_row + i * self.step, self.own_line) for i in range(count)
        ]

    @property
    def bytes(self) -> int:
        return self.rows * self.pitch

    # -- copies ----------------------------------------------------------------------------------------------------
    def fill(self, batch: Dim, row: Dim, edge: bool) -> None:
        """Begin to copy the rows from `row` on; at an `edge` some may be beyond the last one, and become zeros."""
        b, m = self.b, self.matrix
        first = b.bind_unique("first", b.dim(m.element(batch, row + self.own_row, ELEMENTS * self.own_line)))
        checked = edge and not (isinstance(m.rows, int) and m.rows % self.rows == 0)
        start = self.warp.source(self.buffer, first)
        for i in range(self.rows // self.step):
            turn = i % len(self.targets)
            target = self.warp.behind(self.targets[turn], self.first + (i - turn) * self.step * self.pitch)
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
        return b.select(self.b.compare("slt", row, m.rows), whole, b.constant(0, b.i32))

    # -- operands --------------------------------------------------------------------------------------------------
    def left(self, lanes: Lanes, row: int, column: int) -> list[ir.Value]:
        """The left operand, 16 x 16, from `row` (a multiple of 8) and `column` (of 16) on."""
        return self.warp.matrices(lanes.line(self.first, row, column), 4)

    def right(self, lanes: Lanes, row: int, column: int) -> list[ir.Value]:
        """The right operands of two times eight rows, one after the other: k is along the columns."""
        first, second, first_after, second_after = self.left(lanes, row, column)
        return [first, first_after, second, second_after]

    def turned(self, lanes: Lanes, row: int, column: int) -> list[ir.Value]:
        """The right operands of two times eight columns, one after the other: k is along the rows."""
        return self.warp.matrices(lanes.line(self.first, row, column), 4, turned=True)


class Lanes:
    """Where each lane reads in tiles with rows of `pitch` bytes: in row `lane mod 16`, from `down` on, line `lane / 16`.

    A line's place depends on the row, so that an address is one of four and a constant, the same four for all tiles.
    """

    def __init__(self, warp: Warp, ptx: Ptx, pitch: int, down: Dim = 0):
        self.warp, self.pitch = warp, pitch
        lane = dims.symbol("in_warp")
        row, line = dims.mod(lane, 16) + down, dims.floordiv(lane, 16)
        self.addresses = [line_address(ptx, pitch, row, line, number) for number in range(0, BANKS, 2)]

    def line(self, first: int, row: int, column: int) -> ir.Value:
        """The address from `row` and `column` on in a tile that begins at byte `first`."""
        high, low = divmod(column // ELEMENTS, BANKS)
        return self.warp.behind(self.addresses[low // 2], first + row * self.pitch + high * BANKS * LINE)


def line_address(ptx: Ptx, pitch: int, row: Dim, line: Dim, number: int = 0) -> ir.Value:
    """Where line `line + number` of a row lies in a tile that begins shared memory; `line` is 0 or 1 beside a number."""
    b = ptx.b
    with b.at_level(0):
        place = b.value("arith.xori", (b.dim(line), b.dim(dims.mod(row, BANKS))), b.index)
        if number:
            place = b.value("arith.xori", (place, b.constant(number, b.index)), b.index)
        return ptx.shared(row * pitch + LINE * b.bind_unique("line", place))
