"""Convolution with packed weights: a matrix product whose rows are output positions and whose columns are output channels.

    y[p, o] = sum_{c, t} x[c, p * stride - padding + t * dilation] * packed[(c, t), o]

Vectors go along output channels, of which there are whole panels where positions are few or odd (49 of 7 x 7), and A is
read element by element, wherever it lies: in a padded patch of the input (`patch`), or in the image itself where nothing
is padded. Nothing is packed but that patch, a `taps`-th of what vectors of positions need. Where the positions of a tile lie in one
row of the output, neighbouring taps read the same elements: a line of taps is unrolled, and each is loaded once (3 taps of 8
positions: 10 loads for 24).

The sums of an item, positions by channels, are turned in registers when it is done, since the result is stored by channels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from mlir import ir

from ...dialects import dims
from ...dialects.dims import Dim
from ...dialects.dtypes import DTYPES
from ..conv_window import Window
from . import numeric
from .blocks import block_size, divides
from .code import Code, Index, delinearize
from .conv_problem import ConvProblem, input_reader
from .epilogue import Epilogue, needs_scalars
from .fetch import fetching
from .frame import EmitError, Frame
from .gemm import FEW_ITEMS, Gemm, Item
from .micro import Panel, Rows, Tile, fitted, multiply_by_table
from .patch import Patch, Taps
from .transpose import transpose

POSITION_BLOCK = 144  # positions of an item, at most: neighbouring items copy the same borders of patches
LONG_BLOCK = 512  # ... where that leaves enough items to share out among threads
FEW_POSITIONS = 48  # ... of a kernel of one position, where each line of K is as long as there are positions
# of a panel of B and what its tiles read of A: half of a common L1. On Zen 3, 512 channels of 7 x 7 ran at 74 % of the FMA
# peak with blocks of 1024 lines of K, at 80 % with 32 kB of both and at 88 % with 16 kB; sums pass through L1 more often
BLOCK_BYTES = 16_000
MOST_TAPS = 8  # of an unrolled line
FEWEST_LINES, MOST_LINES = 64, 512  # of K in a block


class PackedConv(Gemm):
    """One kernel as a product per image: (positions) x (channels in, taps) x (channels out)."""

    def __init__(self, frame: Frame, problem: ConvProblem, tile: Tile):
        self.problem = p = problem
        if p.w_view is None or p.panel not in (tile.columns, tile.width):
            raise EmitError(f"kernel '{frame.name}' has panels of {p.panel} channels, not {tile.columns}, in memory")
        self.frame, self.taps = frame, math.prod(w.kernel for w in p.windows)
        self.tile = tile = _tile(tile, p)
        # the positions of a tile are in one row of the output
        self.side_by_side = divides(tile.rows, p.spatial[-1].out)
        in_place = self.reads_image()
        most = FEW_POSITIONS if in_place and self.taps == 1 else _position_block(p)
        patch = Patch(frame.code, p.windows, p.in_channels, block_size(p.positions, most, tile.rows), 0)
        super().__init__(
            frame, p.dtype, (p.batch,), p.positions, p.in_channels * self.taps, p.out_channels, tile,
            row_block=most, **self.depth(patch, most),
        )  # fmt: skip
        self.keeps = self.by_rows = True
        self.kept_rows = -(-self.row_block // tile.width) * tile.width  # they are turned by whole vectors
        self.packs = not in_place
        panels = -(-p.out_channels // tile.columns)
        self.b_end = self.code.add(self.code.size(p.w_view.offset), self.code.mul(panels * tile.columns, self.k))
        lead = (p.batch, p.out_channels)
        self.epilogue = Epilogue(frame, p.root, p.dtype, tile, lead, [w.out for w in p.windows], p.bias, 1)
        self.places: Patch | Image = patch
        self.channel = self.code.size(patch.channel)
        if in_place:
            assert p.x_view is not None
            self.places = Image(self.code, p.windows, p.x_view.strides[2:])
            self.channel = self.code.size(p.x_view.strides[1])
        self.table: ir.Value | None = None

    def reads_image(self) -> bool:
        """True if tiles read the image where it lies."""
        p = self.problem
        if p.x_view is None or p.dtype != self.tile.dtype or any(w.padding for w in p.windows):
            return False
        size = dims.product(self.frame.inputs[p.x_view.base].shape)
        return self.taps == 1 or (isinstance(size, int) and size < 1 << 31)  # offsets are stored in 32 bits

    def depth(self, patch: Patch, positions: int) -> dict[str, int]:
        """The lines of K in a block, of which each reads a line of the panel and its share of the patch; their unit."""
        share = patch.channel // self.taps if isinstance(patch.channel, int) else positions
        line = (share + self.tile.columns) * DTYPES[self.tile.dtype].bytes
        return {"k_block": min(MOST_LINES, max(FEWEST_LINES, BLOCK_BYTES // line)), "k_unit": self.taps}

    def emit(self) -> None:
        code = self.code
        self.turned = code.scratch(self.tile.width * self.kept_rows, self.element, self.bytes)
        self.starts = code.scratch(self.row_block, code.index, 8)
        if self.taps > 1:
            self.table = code.scratch(self.problem.in_channels * self.taps, numeric.element_type("i32"), 4)
            self._fill_table()
        super().emit()

    # -- A: the image -------------------------------------------------------------------------------------------
    def packed_size(self) -> Index:
        assert isinstance(self.places, Patch)
        return self.code.size(self.places.size)

    def pack(self, item: Item) -> None:
        """Copy what the item's positions reach to `self.packed`."""
        patch = self.places
        assert isinstance(patch, Patch)
        start, count = patch.slices(item.row, self.code.sub(item.row_end, item.row))
        read = input_reader(self.frame, self.problem, item.batch[0], 0, self.tile.dtype)
        patch.fill(self.packed, start, count, 1 if needs_scalars(self.frame) else self.tile.width, read)

    def sum_up(self, item: Item) -> None:
        """A panel of channels after the other, each by blocks of K that stay in L1 with the positions' sums."""
        code = self.code
        code.loop(item.row, item.row_end, 1, [], lambda m: self._note(item, m))

        def panel(j: Index) -> None:
            first = code.add(item.column, code.mul(j, self.tile.columns))
            b = self.b_panel(item, j, first)

            def tiles(part: Item) -> None:
                tile = lambda m: self.tile_sums(part, m, j, first, first, b)
                code.loop(item.row, item.row_end, self.tile.rows, [], tile)

            if self.blocked:
                self.each_block(item, tiles)
            else:
                tiles(replace(item, k_high=item.depth))

        code.loop(0, item.panels, 1, [], panel)

    def _note(self, item: Item, m: Index) -> None:
        """Note where position `m` of the item starts."""
        code = self.code
        if isinstance(self.places, Patch):
            at, _ = self.places.offset(m, self.places.slices(item.row, 1)[0])
        else:
            at = self.places.offset(m)
        code.store(code.value(at), self.starts, code.sub(m, item.row))

    def _starts(self, item: Item, m: Index) -> list[Index]:
        """Where the positions of the tile from `m` on start."""
        code, rows, first = self.code, self.tile.rows, self.code.sub(m, item.row)
        if not self.side_by_side:
            return [code.load(self.starts, code.add(first, r)) for r in range(rows)]
        start = code.load(self.starts, first)
        return [code.add(start, code.mul(self.places.next_column, r)) for r in range(rows)]

    def a_rows(self, item: Item, m: Index) -> Rows:
        code, starts = self.code, self._starts(item, m)
        if isinstance(self.places, Patch):
            return Rows(self.packed, starts, self.channel)
        view = self.problem.x_view
        assert view is not None
        base = code.add(code.size(view.offset), code.mul(item.batch[0], code.size(view.strides[0])))
        return Rows(self.frame.inputs[view.base].memref, [code.add(base, s) for s in starts], self.channel)

    # -- B: packed ahead of time ----------------------------------------------------------------------------------
    def b_panel(self, item: Item, j: Index, first: Index) -> Panel:
        view = self.problem.w_view
        assert view is not None
        buffer = self.frame.inputs[view.base]
        start = self.code.add(self.code.size(view.offset), self.code.mul(first, self.k))
        return Panel(buffer.memref, start, self.tile.columns, buffer.dtype)

    def fetching(self, item: Item, m: Index, b: Panel) -> Panel:
        code, depth = self.code, self.k_block if self.blocked else self.k
        next_block = code.add(b.start, code.mul(item.k_high, self.tile.columns))
        tile, tiles = code.div(code.sub(m, item.row), self.tile.rows), self.row_block // self.tile.rows
        return fetching(code, b, next_block, self.b_end, tile, tiles, item.k_low, depth)

    def multiply(
        self, tile: Tile, rows: Rows, b: Panel, low: Index, high: Index, acc: list[ir.Value]
    ) -> list[ir.Value]:
        if self.table is None:
            return super().multiply(tile, rows, b, low, high, acc)
        *outer, last = self.problem.windows
        taps = last.kernel if self.side_by_side and last.kernel <= MOST_TAPS else 1
        line = [self.places.tap([*(0 for _ in outer), x]) for x in range(taps)]
        return multiply_by_table(self.code, tile, rows, self.table, b, low, high, acc, line)

    def _fill_table(self) -> None:
        """Note where each element of K lies, counted from the first: one load, where sums of three terms cost registers."""
        code, table = self.code, self.table
        assert table is not None

        def channel(c: Index) -> None:
            def tap(number: Index, offset: Index) -> None:
                at = code.value(code.add(code.mul(c, self.channel), offset))
                code.store(
                    code.op("arith.index_cast", [numeric.element_type("i32")], [at]),
                    table,
                    code.add(code.mul(c, self.taps), number),
                )

            self.places.each_tap(tap)

        code.loop(0, self.problem.in_channels, 1, [], channel)

    # -- the result -------------------------------------------------------------------------------------------------
    def write(self, item: Item) -> None:
        """Turn the sums, a vector of channels at a time, and write the channels."""
        code, width, line = self.code, self.tile.width, self.kept_rows
        count = code.sub(item.row_end, item.row)

        def channels(c: Index) -> None:
            def block(p: Index) -> None:
                at = code.add(code.mul(p, self.column_block), c)
                rows = [code.vload(self.sums, code.add(at, i * self.column_block), width) for i in range(width)]
                for i, column in enumerate(transpose(code, rows, 8 * self.bytes)):
                    code.vstore(column, self.turned, code.add(p, i * line))

            def channel(i: Index) -> None:
                lead = [item.batch[0], code.add(item.column, c, i)]
                self.epilogue.emit(lead, item.row, count, self.turned, code.mul(i, line))

            code.loop(0, count, width, [], block)
            code.loop(0, code.min(width, code.sub(item.columns, c)), 1, [], channel)

        code.loop(0, item.columns, width, [], channels)


def _tile(tile: Tile, problem: ConvProblem) -> Tile:
    """The register tile that takes the panels in memory; where lines have several taps, one that cuts the output's rows evenly.

    A panel of one vector holds all output channels: then the tile is up to twice as tall, for as many sums.
    """
    positions, last = problem.positions, problem.spatial[-1]
    usual = tile.rows
    heights = range(usual, usual * 3 // 4, -1) if last.kernel > 1 else range(0)
    if problem.panel != tile.columns:
        tile, heights = (
            replace(tile, vectors=1),
            range(2 * usual, usual, -1),
        )  # registers hold no more places than `usual`
    even = [height for height in heights if divides(height, last.out)]
    if even:
        return replace(tile, rows=even[0])
    return fitted(tile, positions) if isinstance(positions, int) and tile.vectors > 1 else tile


def _position_block(problem: ConvProblem) -> int:
    """Positions of an item, at most."""
    items = dims.ceildiv(problem.positions, LONG_BLOCK) * problem.batch
    return LONG_BLOCK if isinstance(items, int) and items >= FEW_ITEMS else POSITION_BLOCK


class Image(Taps):
    """An image that is read where it lies; `strides` are those of its spatial dims."""

    def __init__(self, code: Code, windows: Sequence[Window], strides: Sequence[Dim]):
        super().__init__(code, windows)
        self.strides = tuple(strides)
        self.next_column = code.mul(code.size(strides[-1]), windows[-1].stride)

    def offset(self, position: Index) -> Index:
        """Where output `position` starts."""
        code, at = self.code, 0
        for i, window, stride in zip(
            delinearize(code, position, [w.out for w in self.windows]), self.windows, self.strides
        ):
            at = code.add(at, code.mul(i, code.mul(code.size(stride), window.stride)))
        return at

    def tap(self, taps: Sequence[Index]) -> Index:
        code, at = self.code, 0
        for i, window, stride in zip(taps, self.windows, self.strides):
            at = code.add(at, code.mul(code.mul(i, window.dilation), code.size(stride)))
        return at
