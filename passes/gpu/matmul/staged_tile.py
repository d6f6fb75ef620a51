"""An operand of a product by `mma.sync`: tiles along K in shared memory, written by copies of 16 bytes, a stage each.

A tile is `rows` (along M or N) by `depth_bytes` along K, in lines of 16 bytes that trade places so that the eight lines
which `ldmatrix` reads at once are in all 32 banks:

    K-major    row r has its lines along K: line c is at  c xor (r mod 8), or c xor (r / 2 mod 4) of rows of 64 bytes
    turned     place k along K has its lines along the rows: line c is at  c xor (k mod 8)

A *block* is what one `ldmatrix` of four matrices reads: 16 rows by 32 bytes along K (a step). With `x` and `y` the
numbers of step and block (turned: of block and step), it lies `32 x` by exclusive or and `16 pitch y` by addition from
where the warp's first one lies, so that a lane keeps few addresses. Elements outside the matrix become zeros.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlir import ir

from ....dialects import dims
from ....dialects.dims import Dim
from ..ampere.warp import LINE, Warp
from ..hopper.ptx import Ptx
from ..lane_places import divisible
from .operands import Operand

BLOCK = 16  # rows of a block
STEP_BYTES = 32  # along K, of one product


@dataclass(frozen=True)
class Layout:
    """How the lines of a tile lie in shared memory."""

    rows: int
    depth_bytes: int
    turned: bool
    element_bytes: int

    @property
    def bytes(self) -> int:
        return self.rows * self.depth_bytes

    @property
    def depth(self) -> int:
        """Elements along K."""
        return self.depth_bytes // self.element_bytes

    @property
    def pitch(self) -> int:
        """Bytes of one row, or of one place along K."""
        return self.rows * self.element_bytes if self.turned else self.depth_bytes

    @property
    def lines(self) -> int:
        """Lines of 16 bytes in a pitch."""
        return self.pitch // LINE

    def offset(self, outer: Dim, line: Dim) -> Dim:
        """Where a line of row (turned: place along K) `outer` begins; `line` has traded places already."""
        return self.pitch * outer + LINE * line

    def turn(self, outer: Dim) -> Dim:
        """What the number of a line is combined with by exclusive or."""
        if not self.turned and self.depth_bytes == 64:
            return dims.mod(dims.floordiv(outer, 2), 4)
        return dims.mod(outer, 8)


class StagedTile:
    """One side of a product: where this thread's copies go and come from, and what its warp reads.

    `first` is the tile's first row in the matrix, `own` the warp's first row in the tile, `start` the tile's byte in a
    stage. Symbols `thread` and `in_warp` are the thread's numbers in the block and in its warp.
    """

    def __init__(
        self, ptx: Ptx, operand: Operand, layout: Layout, batch: Dim, first: Dim, own: Dim, start: int, left: bool
    ):
        self.ptx, self.b, self.warp = ptx, ptx.b, Warp(ptx.stage)
        self.operand, self.layout, self.batch, self.first, self.start = operand, layout, batch, first, start
        stage = ptx.stage
        self.buffer = stage.scratch[operand.source] if isinstance(operand.source, int) else stage.inputs[operand.source]
        # f32 that no stage before has rounded
        self.rounds = operand.matrix.bytes == 4 and not isinstance(operand.source, int)
        thread = dims.symbol("thread")
        self.outer, self.line = dims.floordiv(thread, layout.lines), dims.mod(thread, layout.lines)
        self.at_once = min(stage.threads // layout.lines, layout.bytes // layout.pitch)  # rows copied at a time
        self.target = self._offset(self.outer, self.line)
        self.bases = self._blocks(own, left)

    def _offset(self, outer: Dim, line: Dim) -> Dim:
        """`Layout.offset` of a line before it has traded places, as a symbol."""
        b = self.b
        place = b.value("arith.xori", (b.dim(line), b.dim(self.layout.turn(outer))), b.index)
        return self.layout.offset(outer, b.bind_unique("line", place))

    # -- copies ----------------------------------------------------------------------------------------------------
    @property
    def copies(self) -> int:
        """Of each thread, for one stage."""
        return self.layout.bytes // self.layout.pitch // self.at_once

    def copy(self, number: int, stage: Dim, block: Dim, blocks: Dim) -> None:
        """Begin copy `number` of block `block` of K (of `blocks` a pass) into the stage that begins at byte `stage`."""
        layout, m = self.layout, self.operand.matrix
        down = number * self.at_once
        batch, block = self.operand.place(self.batch, block, blocks)
        per_line = LINE // m.bytes
        outer, along = self.outer + down, per_line * self.line
        row, k = (along, outer) if layout.turned else (outer, along)
        row, k = self.first + row, layout.depth * block + k
        source = self.warp.source(self.buffer, m.element(batch, row, k))
        target = self.ptx.shared(stage + self.target + (self.start + down * layout.pitch))
        if layout.turned:
            limits = ((k, m.k, layout.depth), (row, m.rows, layout.rows))
        else:
            limits = ((row, m.rows, layout.rows), (k, m.k, layout.depth))
        self.warp.copy(target, source, self._valid(*limits))

    def _valid(self, outer: tuple[Dim, Dim, int], inner: tuple[Dim, Dim, int]) -> ir.Value | None:
        """How many of a line's 16 bytes are in the matrix, where (place, size, tile) are given; None: all."""
        b, size = self.b, self.operand.matrix.bytes
        valid: ir.Value | None = None
        place, end, tile = inner
        if not divisible(end, tile):
            rest = b.binary("arith.muli", b.dim(end - place), b.constant(size, b.index))
            rest = b.value("arith.minsi", (rest, b.constant(LINE, b.index)), b.index)
            valid = self.ptx.i32(b.value("arith.maxsi", (rest, b.constant(0, b.index)), b.index))
        place, end, tile = outer
        if divisible(end, tile):
            return valid
        whole = b.constant(LINE, b.i32) if valid is None else valid
        return b.select(self.b.compare("slt", place, end), whole, b.constant(0, b.i32))

    # -- what a warp reads -----------------------------------------------------------------------------------------
    def _blocks(self, own: Dim, left: bool) -> list[Dim]:
        """This lane's offsets of the blocks `x` = 0 … 3 (a lane gives the address of one row of the four matrices)."""
        b, layout, lane = self.b, self.layout, dims.symbol("in_warp")
        eighth, sixteenth = dims.mod(dims.floordiv(lane, 8), 2), dims.floordiv(lane, 16)
        # matrices of a left operand go by rows first, those of two right ones by K first
        of_rows, of_k = (eighth, sixteenth) if left else (sixteenth, eighth)
        inside = dims.mod(lane, 8)
        if layout.turned:
            outer, line = 8 * of_k + inside, dims.floordiv(own, 8) + of_rows
        else:
            outer, line = own + 8 * of_rows + inside, of_k
        base = b.dim(self._offset(outer, line) + self.start)
        number = layout.lines // 2 if not layout.turned else 4
        bases = [b.value("arith.xori", (base, b.constant(2 * LINE * x, b.index)), b.index) for x in range(number)]
        return [b.bind_unique("block", value) for value in bases]

    def read(self, stage: Dim, block: int, step: int) -> list[ir.Value]:
        """The four matrices of 16 rows from `16 block` of the warp's on, at a step along K."""
        x, y = (block, step) if self.layout.turned else (step, block)
        high, low = divmod(x, len(self.bases))
        assert high == 0
        address = self.ptx.shared(stage + self.bases[low] + BLOCK * self.layout.pitch * y)
        return self.warp.matrices(address, 4, self.layout.turned)
