"""Convolution with fewer output positions than kernel positions, as the gradient of a convolution's weights is one.

    y[image, o, p] = sum_{c, t} x[image, c, p * stride - padding + t * dilation] * w[o, c, t]

There `t` runs over whole images, `p` over the few taps of the weights, and `image` over what the gradient's convolution
calls channels. One product: rows are images and positions, columns are output channels, and K, far longer than both, is
input channels and kernel positions. Blocks of K go outermost, so that what they need stays in L2:

    for each block of K:                      whole slices of the kernel's first dim, or several whole channels
        copy what it reads of the item's images to patches, padded with zeros
        pack its lines of the weights         turned: they are stored by output channels
        for each panel, for each tile:        A element by element from the patches, where a table finds it

The patch is that of the convolution in which kernel and positions have changed places, stride and dilation too: K then
walks along its rows. The sums, by positions and channels, are turned in registers when an item is done.
"""

from __future__ import annotations

import math
from dataclasses import replace

from mlir import ir

from ...dialects import dims
from ...dialects.dims import Dim
from . import numeric
from .blocks import block_size
from .code import Index
from .conv_problem import FewProblem, input_reader
from .epilogue import Epilogue, needs_scalars
from .frame import Frame
from .gemm import Gemm, Item
from .micro import Panel, Rows, Tile, multiply_by_table
from .pack import Matrix, pack_panels
from .patch import Patch
from .transpose import transpose

LINES = 512  # of K in a block: patches, packed weights and sums are some 300 kB of L2
SYMBOLIC_SLICES = 8  # in a block where their size is not known
MOST_ROWS, FEWER_ROWS = 288, 144  # of an item, and where items are few: each packs the weights again
FEW_ITEMS = 8  # that are enough for threads to share the work
TURNED_TAPS = 64  # positions up to which they are turned by vectors


class FewPositions(Gemm):
    """One kernel as a product per group: (images, positions) x (channels in, taps) x (channels out)."""

    def __init__(self, frame: Frame, problem: FewProblem, tile: Tile):
        self.problem = p = problem
        code, first = frame.code, p.windows[0].out
        self.taps = math.prod(w.kernel for w in p.windows)
        self.inner = dims.product(w.out for w in p.windows[1:])
        self.channels_block, self.slices = self._block_of_k(first)
        rows, columns = p.images * self.taps, p.out_channels // p.groups
        unit = math.lcm(self.taps, tile.rows)  # blocks of rows are whole images and whole tiles
        row_block, column_block = _item(rows, columns, p.groups, unit)
        super().__init__(
            frame, p.dtype, (p.groups,), rows, p.channels * first * self.inner, columns, tile,
            row_block=row_block, column_block=column_block,
        )  # fmt: skip
        self.row_block = block_size(rows, row_block, unit)
        self.column_block = block_size(columns, column_block, tile.columns)
        self.keeps = self.blocked = True
        self.packs = False  # not all of K at once
        self.kept_rows = self.row_block
        lines = self.channels_block * self.slices * self.inner
        self.k_block = lines if isinstance(lines, int) else 2 * self.k_chunk
        self.most_lines = code.size(lines)
        images = self.row_block // self.taps
        self.patch = Patch(code, p.windows, images, 0, 0, self.slices)
        columns_out = (p.out_channels, *(w.kernel for w in p.windows))
        self.epilogue = Epilogue(frame, p.root, p.dtype, tile, (p.images,), columns_out, p.bias, 1)

    def _block_of_k(self, first: Dim) -> tuple[int, int]:
        """Channels and slices of each in a block of K; several channels only where their slices are all of them."""
        if not isinstance(self.inner, int):
            return 1, SYMBOLIC_SLICES
        most = max(1, LINES // max(1, self.inner))
        if isinstance(first, int) and 2 * first <= most:
            return block_size(self.problem.channels, most // max(1, first), 1), first
        return 1, block_size(first, most, 1)

    def emit(self) -> None:
        code, size = self.code, self.code.size(self.patch.size)
        i32 = numeric.element_type("i32")
        self.patches = code.scratch(code.mul(size, self.channels_block), self.element, self.bytes)
        self.packed = code.scratch(code.mul(self.most_lines, self.column_block), self.element, self.bytes)
        self.table = code.scratch(self.most_lines, i32, 4)
        self.starts = code.scratch(self.row_block, code.index, 8)
        self.turned = code.scratch((self.column_block + self.tile.width) * self.taps, self.element, self.bytes)
        each = code.mul(self.slices, code.size(self.inner))

        def channel(c: Index) -> None:
            def line(k: Index) -> None:
                at = code.value(code.add(code.mul(c, size), self.patch.offset(k, 0)[0]))
                code.store(code.op("arith.index_cast", [i32], [at]), self.table, code.add(code.mul(c, each), k))

            code.loop(0, each, 1, [], line)

        def image(i: Index) -> None:
            def tap(number: Index, offset: Index) -> None:
                at = code.add(code.mul(i, code.size(self.patch.channel)), offset)
                code.store(code.value(at), self.starts, code.add(code.mul(i, self.taps), number))

            self.patch.each_tap(tap)

        code.loop(0, self.channels_block, 1, [], channel)
        code.loop(0, self.row_block // self.taps, 1, [], image)
        super().emit()

    # -- sums ---------------------------------------------------------------------------------------------------
    def sum_up(self, item: Item) -> None:
        """All tiles of an item, block of K after block of K."""
        code = self.code
        channels, first = code.size(self.problem.channels), code.size(self.problem.windows[0].out)

        def block(c: Index) -> None:
            code.loop(0, first, self.slices, [], lambda s: self._sum_block(item, c, s))

        code.loop(0, channels, self.channels_block, [], block)
        self._no_k(item)

    def _sum_block(self, item: Item, c: Index, s: Index) -> None:
        """The block of K that begins at channel `c` of the group and slice `s`."""
        code, p = self.code, self.problem
        channels = code.min(self.channels_block, code.sub(code.size(p.channels), c))
        slices = code.min(self.slices, code.sub(code.size(p.windows[0].out), s))
        each = code.mul(slices, code.size(self.inner))
        self.lines = lines = code.mul(channels, each)

        def channel(i: Index) -> None:
            self._fill(item, code.add(c, i), s, slices, code.mul(i, code.size(self.patch.size)))
            b = self._weights(item, code.add(c, i), s)
            place = (code.mul(i, each), lines)
            pack_panels(code, self.tile, b, each, self.n, item.column, item.panels, self.packed, place)

        code.loop(0, channels, 1, [], channel)
        none_before = code.both(code.compare("eq", c, 0), code.compare("eq", s, 0))
        self._block(replace(item, k_high=lines, first=none_before))

    def _fill(self, item: Item, channel: Index, slice: Index, slices: Index, at: Index) -> None:
        """Copy what the item reads of a channel of its images to the patch at `at`."""
        code, p = self.code, self.problem
        channel = code.add(code.mul(item.batch[0], code.size(p.channels)), channel)
        first = code.div(item.row, self.taps)

        def read(image: Index, position: list[Index], lanes: int) -> ir.Value:
            return input_reader(self.frame, p, code.add(first, image), channel, self.tile.dtype)(0, position, lanes)

        images = code.div(code.sub(item.row_end, item.row), self.taps)
        width = 1 if needs_scalars(self.frame) else self.tile.width
        self.patch.fill(self.patches, slice, slices, width, read, images, at)

    def _weights(self, item: Item, channel: Index, slice: Index) -> Matrix:
        """The lines of B from a slice of a channel on."""
        code, p, view = self.code, self.problem, self.problem.w_view
        buffer = self.frame.inputs[view.base]
        row, along, across = view.strides[0], code.size(view.strides[1]), code.size(p.weight_stride)
        offset = code.add(
            code.size(view.offset), code.mul(code.mul(item.batch[0], self.n), code.size(row)),
            code.mul(channel, along), code.mul(code.mul(slice, code.size(self.inner)), across),
        )  # fmt: skip
        return Matrix(buffer.memref, buffer.dtype, offset, across, code.size(row))

    def a_copy(self, item: Item, m: Index, low: Index, size: Index, at: Index) -> None:
        raise NotImplementedError  # A is read in place, from the patches

    def a_rows(self, item: Item, m: Index) -> Rows:
        code, first = self.code, self.code.sub(m, item.row)
        return Rows(self.patches, [code.load(self.starts, code.add(first, r)) for r in range(self.tile.rows)])

    def b_panel(self, item: Item, j: Index, first: Index) -> Panel:
        return Panel(self.packed, self.code.mul(self.code.mul(j, self.lines), self.tile.columns), self.tile.columns)

    def multiply(
        self, tile: Tile, rows: Rows, b: Panel, low: Index, high: Index, acc: list[ir.Value]
    ) -> list[ir.Value]:
        return multiply_by_table(self.code, tile, rows, self.table, b, low, high, acc)

    # -- the result ---------------------------------------------------------------------------------------------
    def write(self, item: Item) -> None:
        """Turn the sums of each image, and write its channels."""
        code = self.code
        first = code.div(item.row, self.taps)
        column = code.add(code.mul(item.batch[0], self.n), item.column)

        def image(i: Index) -> None:
            at = code.mul(code.mul(i, self.taps), self.column_block)
            sums = self.sums
            if self.taps > 1:
                self._turn(item, at)
                sums, at = self.turned, 0
            count = code.mul(item.columns, self.taps)
            self.epilogue.emit([code.add(first, i)], code.mul(column, self.taps), count, sums, at)

        code.loop(0, code.div(code.sub(item.row_end, item.row), self.taps), 1, [], image)

    def _turn(self, item: Item, at: Index) -> None:
        """Write the sums of an image by channels: its positions, which begin at `at`, a row each."""
        code, taps, width = self.code, self.taps, self.tile.width
        if taps > TURNED_TAPS:

            def element(c: Index, t: Index) -> None:
                total = code.load(self.sums, code.add(at, code.mul(t, self.column_block), c))
                code.store(total, self.turned, code.add(code.mul(c, taps), t))

            code.loop(0, item.columns, 1, [], lambda c: code.loop(0, taps, 1, [], lambda t: element(c, t)))
            return

        def channels(c: Index) -> None:
            rows = [code.vload(self.sums, code.add(at, t * self.column_block, c), width) for t in range(taps)]
            rows += [rows[-1]] * (-taps % width)
            blocks = [transpose(code, rows[t : t + width], 8 * self.bytes) for t in range(0, len(rows), width)]
            for lane in range(width):  # in order: what is written too far is written over
                for number, block in enumerate(blocks):
                    code.vstore(block[lane], self.turned, code.add(code.mul(code.add(c, lane), taps), number * width))

        code.loop(0, item.columns, width, [], channels)


def _item(rows: Dim, columns: int, groups: int, unit: int) -> tuple[int, int]:
    """Rows and columns of an item: fewer of both where items are few, so that threads share the work."""
    sizes = [(MOST_ROWS, 128), (MOST_ROWS, 64), (FEWER_ROWS, 64), (FEWER_ROWS, 32)]
    for row_block, column_block in sizes:
        count = groups * dims.ceildiv(rows, block_size(rows, row_block, unit)) * -(-columns // column_block)
        if not isinstance(count, int) or count >= FEW_ITEMS:
            return row_block, column_block
    return sizes[-1]
