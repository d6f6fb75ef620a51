"""The loop nest of every kernel that is a matrix product inside: matmul, linear, convolution.

    y[batch, m, n] = sum_k a[batch, m, k] * b[batch, k, n]        m < rows, n < columns

One work item is one block of rows times one block of columns of one batch:

    for item in begin .. end:                (batch, column block, row block); row block fastest
        pack the item's columns of B         when the column block changes
        for each block of K:
            copy the item's rows of A        unless A is read in place
            for each panel of columns:       of B, from L2, at 11 bytes a cycle
                for each `rows`-high tile:   K_CHUNK of K at a time in registers -> tile scratch (L1) -> epilogue, store

With K above `K_BLOCK` the sums of a whole item stay in scratch between blocks of K, and the epilogue follows the last.
The sums go through scratch so that fused code is emitted once however many variants of the register tile there are;
where there is one variant, LLVM keeps them in registers.

What is reused from L2 is small (72 rows of 1024 elements of A, 288 KiB; one panel of B, 64 KiB), so that neighbours who
fill the shared L3 cost little. Sums that wait in scratch are the dearest part: with blocks of 512 elements of K, 1024^3
ran at 92 % of the FMA peak of a Zen 3 core, with one block of 1024 at 97 %.

A kernel subclasses `Gemm` and says where A's rows are (`a_rows`, `a_copy`), how to pack B (`pack`) or where to find
it unpacked (`packs` False; `b_panel`, `first_column`), and where a sum belongs (`lead_index`). Items may lie otherwise
(`items`, `locate`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from mlir import ir

from ...dialects import dims
from ...dialects.dims import Dim
from ...dialects.dtypes import DTYPES
from . import numeric
from .blocks import block_size, divides, row_cases
from .code import Index, delinearize
from .epilogue import Epilogue
from .frame import Frame
from .micro import Panel, Rows, Tile, load_tile, multiply, store_tile, zeros

K_CHUNK = 512  # products summed in a row; longer sums are sums of such, as accurate as eager's, for 1 % of the time
K_BLOCK = 1024  # elements of K at a time
ROW_BLOCK = 72  # rows of an item, at most: their K_BLOCK elements of A stay in L2
COLUMN_BLOCK = 128  # columns of an item, at most: for so many a block of A is read once from memory
FEW_ITEMS = 16  # with fewer items than this, blocks of columns are halved, for threads to share the work evenly
# flops of a lane in the smallest chunk of items given to a thread: 5 us. Where threads are awake, as between the kernels of a call, a
# region costs 1 us if they share an L3 and some 5 if not: two chunks of 2 us (AVX-512) took 3.3 us or 6 for 4.3, of 5 us (AVX2) gained in both
LANE_WORK = 62_500


@dataclass(frozen=True)
class Item:
    """One work item: rows `row .. row_end` times `columns` columns from `column` on, over `k_low .. k_high`."""

    batch: list[Index]
    row: Index
    row_end: Index
    column: Index
    columns: Index
    panels: Index
    depth: Index  # K, or 0 for sums of nothing
    k_low: Index = 0
    k_high: Index = 0
    first: ir.Value | None = None  # with blocks of K: true in the first


def grain(work: int, lanes: int) -> int:
    """The items of `work` flops each that make a chunk, by vectors of so many lanes."""
    return max(1, LANE_WORK * lanes // max(1, work))


class Gemm:
    """One kernel; `dtype` is that of the operands and of the root."""

    def __init__(
        self, frame: Frame, dtype: str, batch: Sequence[Dim], rows: Dim, k: Dim, columns: Dim,
        tile: Tile, row_block: int = ROW_BLOCK, column_block: int = COLUMN_BLOCK, k_block: int = K_BLOCK,
        k_unit: int = 1,
    ):  # fmt: skip
        self.frame, self.code, self.dtype = frame, frame.code, dtype
        self.batch, self.rows_dim, self.k_dim, self.columns_dim = tuple(batch), rows, k, columns
        self.tile = tile
        self.element = numeric.element_type(self.tile.dtype)
        self.bytes = 8 if self.tile.dtype in ("f64", "i64") else 4
        self.row_block = block_size(rows, row_block, self.tile.rows)
        items = [*batch, dims.ceildiv(rows, self.row_block), dims.ceildiv(columns, column_block)]
        if all(isinstance(i, int) for i in items) and dims.product(items) < FEW_ITEMS:  # type: ignore[operator]
            column_block //= 2
        self.column_block = block_size(columns, column_block, self.tile.columns)
        self.k_block = block_size(k, k_block, k_unit)
        self.k_chunk = block_size(self.k_block, K_CHUNK, k_unit)
        # rows that are one tile are read once, whatever K
        one_tile = k_block == K_BLOCK and isinstance(rows, int) and rows <= tile.rows
        self.blocked = not one_tile and not (isinstance(k, int) and 0 < k <= k_block)
        self.k, self.m, self.n = (self.code.size(d) for d in (k, rows, columns))
        self.a_in_place = self.packs = True
        self.padded = True  # the last panel of B is padded to its whole width
        self.keeps = self.blocked  # the sums of a whole item stay in scratch until its last tile is done
        self.kept_rows = self.row_block
        self.by_rows = False  # items of one block of rows follow each other, not those of one block of columns
        self.a_dtype = tile.dtype  # of `a_block`
        self.epilogue: Epilogue

    # -- what a kernel says -----------------------------------------------------------------------------------
    def begin_item(self, item: Item) -> None:
        """Emit what an item needs before its tiles."""

    def pack(self, item: Item) -> None:
        """Pack the item's columns of B, all of K, to `self.packed`: panel after panel."""
        raise NotImplementedError

    def packed_size(self) -> Index:
        """Elements of `self.packed`."""
        return self.code.mul(self.k, self.column_block)

    def panel_column(self, item: Item, j: Index) -> Index:
        """The first column of panel `j` of the item."""
        return self.code.add(item.column, self.code.mul(j, self.tile.columns))

    def first_column(self, first: Index) -> Index:
        """The first column that the panel at column `first` really covers: itself, or fewer columns past the last."""
        return first

    def b_panel(self, item: Item, j: Index, first: Index) -> Panel:
        """Panel `j` of the item, which covers columns from `first` on."""
        start = self.code.mul(self.code.mul(j, self.k), self.tile.columns)
        return Panel(self.packed, start, self.tile.columns)

    def fetching(self, item: Item, m: Index, b: Panel) -> Panel:
        """Panel `b`, as one that fetches what is read next while the tile from row `m` on is summed."""
        return b

    def a_rows(self, item: Item, m: Index) -> Rows:
        """Where rows `m ...` of A are, when A is read in place; else they are in `self.a_block`, a line each."""
        line = self.a_line(self.code.sub(item.k_high, item.k_low))
        first = self.code.sub(m, item.row)
        # the loops over k run from k_low; the scratch starts at 0
        lines = [self.code.mul(line, self.code.add(first, r)) for r in range(self.tile.rows)]
        return Rows(self.a_block, [self.code.sub(line, item.k_low) for line in lines])

    def a_line(self, depth: Index) -> Index:
        """Elements of a line of `self.a_block` that holds `depth` elements of K."""
        return depth

    def a_size(self, depth: Index) -> Index:
        """Elements of `self.a_block`, for `depth` elements of K."""
        return self.code.mul(self.a_line(depth), self.row_block)

    def copy_rows(self, item: Item) -> None:
        """Copy the item's rows of A to `self.a_block`, when A is not read in place."""
        code = self.code
        depth = code.sub(item.k_high, item.k_low)
        line = self.a_line(depth)

        def row(m: Index) -> None:
            self.a_copy(item, m, item.k_low, depth, code.mul(code.sub(m, item.row), line))

        code.loop(item.row, item.row_end, 1, [], row)

    def a_copy(self, item: Item, m: Index, low: Index, size: Index, at: Index) -> None:
        """Copy `A[m, low : low + size]` to `self.a_block[at ...]`."""
        raise NotImplementedError

    def lead_index(self, item: Item, m: Index) -> list[Index]:
        """The index of row `m` in the root's leading dimensions."""
        raise NotImplementedError

    # -- the nest ---------------------------------------------------------------------------------------------
    def emit(self) -> None:
        """Emit the whole body and close the frame."""
        code, tile = self.code, self.tile
        if self.packs:
            self.packed = code.scratch(self.packed_size(), self.element, self.bytes)
        if not self.a_in_place:
            depth = self.k_block if self.blocked else self.k
            element = numeric.element_type(self.a_dtype)
            self.a_block = code.scratch(self.a_size(depth), element, DTYPES[self.a_dtype].bytes)
        sums = self.kept_rows * self.column_block if self.keeps else tile.rows * tile.columns
        self.sums = code.scratch(sums, self.element, self.bytes)
        self.row_blocks = dims.ceildiv(self.rows_dim, self.row_block)
        self.column_blocks = dims.ceildiv(self.columns_dim, self.column_block)
        code.loop(self.frame.begin, self.frame.end, 1, [], self._item)
        work = 2 * self.row_block * self.column_block * (self.k_dim if isinstance(self.k_dim, int) else 256)
        self.frame.close(self.items(), grain(work, self.tile.width))

    def items(self) -> Dim:
        """The number of work items."""
        return dims.product(self.batch) * self.row_blocks * self.column_blocks

    def locate(self, number: ir.Value) -> tuple[Item, ir.Value]:
        """The item of a number, and whether what it packs is other than what the item before did."""
        code = self.code
        blocks = [code.size(self.row_blocks), code.size(self.column_blocks)]
        fast, slow = reversed(blocks) if self.by_rows else blocks
        inner, outer = code.rem(number, fast), code.div(number, fast)
        place = [inner, code.rem(outer, slow)]
        row_block, column_block = reversed(place) if self.by_rows else place
        row, column = code.mul(row_block, self.row_block), code.mul(column_block, self.column_block)
        columns = code.min(self.column_block, code.sub(self.n, column))
        item = Item(
            batch=delinearize(code, code.div(outer, slow), self.batch),
            row=row,
            row_end=code.min(code.add(row, self.row_block), self.m),
            column=column,
            columns=self.column_block if divides(self.column_block, self.columns_dim) else columns,
            panels=code.ceildiv(columns, self.tile.columns),
            depth=self.k,
        )
        return item, code.either(code.compare("eq", number, self.frame.begin), code.compare("eq", inner, 0))

    def _item(self, number: ir.Value) -> None:
        code = self.code
        item, others = self.locate(number)
        self.begin_item(item)
        if self.packs:
            code.branch(others, lambda: self.pack(item))

        self.sum_up(item)
        if self.keeps:
            self.write(item)

    def sum_up(self, item: Item) -> None:
        """All tiles of an item over all of K."""
        if not self.blocked:
            self._block(replace(item, k_high=item.depth))
            return
        self.each_block(item, self._block)
        self._no_k(item)
        self._close_gap(item)

    def each_block(self, item: Item, body: Callable[[Item], None]) -> None:
        """`body(item)` for each block of K."""
        code = self.code

        def block(k: ir.Value) -> None:
            high = code.add(k, self.k_block)
            if not divides(self.k_block, self.k_dim):
                high = code.min(high, self.k)
            body(replace(item, k_low=k, k_high=high, first=code.compare("eq", k, 0)))

        code.loop(0, item.depth, self.k_block, [], block)

    def write(self, item: Item) -> None:
        """Write an item's results from its sums."""
        code = self.code

        def row(m: Index) -> None:
            at = code.mul(code.sub(m, item.row), self.column_block)
            self.epilogue.emit(self.lead_index(item, m), item.column, item.columns, self.sums, at)

        code.loop(item.row, item.row_end, 1, [], row)

    def _no_k(self, item: Item) -> None:
        """With K = 0 no block ran: the sums are zero."""
        code = self.code
        if isinstance(item.depth, int) and item.depth > 0:
            return
        size = code.mul(code.sub(item.row_end, item.row), self.column_block)
        zero = code.constant(0, self.element)

        def clear() -> None:
            code.loop(0, size, 1, [], lambda i: code.store(zero, self.sums, i))

        code.branch(code.compare("eq", item.depth, 0), clear)

    def _close_gap(self, item: Item) -> None:
        """Where the last panel covers columns before its first, move its sums to where they belong."""
        code, tile = self.code, self.tile
        place = code.mul(code.sub(item.panels, 1), tile.columns)
        first = code.add(item.column, place)
        start = self.first_column(first)
        if start is first:
            return
        gap = code.sub(first, start)

        def row(m: Index) -> None:
            at = code.add(code.mul(code.sub(m, item.row), self.column_block), place)
            move = lambda c: code.store(code.load(self.sums, code.add(at, c, gap)), self.sums, code.add(at, c))
            code.loop(0, self._width(first), 1, [], move)

        code.branch(code.compare("gt", gap, 0), lambda: code.loop(item.row, item.row_end, 1, [], row))

    def _width(self, first: Index) -> Index:
        """The columns of the panel that starts at column `first`."""
        width = self.tile.columns
        return width if divides(width, self.columns_dim) else self.code.min(width, self.code.sub(self.n, first))

    def _block(self, item: Item) -> None:
        """All tiles of an item over one block of K: a panel of B stays in L1 while the rows of A pass by."""
        code, tile = self.code, self.tile
        if not self.a_in_place:
            self.copy_rows(item)

        def panel(j: Index) -> None:
            first = self.panel_column(item, j)
            start = self.first_column(first)
            b = self.b_panel(item, j, start)
            code.loop(item.row, item.row_end, tile.rows, [], lambda m: self.tile_sums(item, m, j, first, start, b))

        code.loop(0, item.panels, 1, [], panel)

    def tile_sums(self, item: Item, m: Index, j: Index, first: Index, start: Index, b: Panel) -> None:
        """The register tile of rows from `m` on and panel `j`, which starts at column `first` (read from `start` on)."""
        code, tile = self.code, self.tile
        count = tile.rows if divides(tile.rows, self.rows_dim) else code.min(tile.rows, code.sub(item.row_end, m))
        rows, b = self.a_rows(item, m), self.fetching(item, m, b)
        at, stride = 0, tile.columns
        if self.keeps:
            stride = self.column_block
            at = code.add(code.mul(code.sub(m, item.row), stride), code.mul(j, tile.columns))
        cases = row_cases(self.rows_dim, tile.rows)
        self._each_width(
            first,
            lambda narrow: code.switch(
                count, cases, lambda height: self.compute(item, rows, b, height, at, stride, narrow)
            ),
        )
        if not self.keeps:
            self._write_tile(item, m, count, first, start)

    def _write_tile(self, item: Item, m: Index, count: Index, first: Index, start: Index) -> None:
        code, width = self.code, self._width(first)
        skip = 0 if start is first else code.sub(first, start)

        def row(r: Index) -> None:
            lead = self.lead_index(item, code.add(m, r))
            self.epilogue.emit(lead, first, width, self.sums, code.add(code.mul(r, self.tile.columns), skip))

        code.loop(0, count, 1, [], row)

    def _each_width(self, first: Index, body: Callable[[Tile], None]) -> None:
        """`body(tile)` for the panel at column `first`: a narrower tile does where the last panel fits one vector."""
        ragged = self.columns_dim % self.tile.columns if isinstance(self.columns_dim, int) else 0
        if not self.padded or not 0 < ragged <= self.tile.width:
            body(self.tile)
            return
        narrow = replace(self.tile, vectors=1)
        last = self.code.compare("ge", first, self.n - ragged)  # type: ignore[operator]
        self.code.branch(last, lambda: body(narrow), lambda: body(self.tile))

    def compute(self, item: Item, rows: Rows, b: Panel, height: int, at: Index, stride: int, tile: Tile) -> None:
        """The product of one register tile, added to its sums in scratch, or put there where nothing is there yet."""
        code, some = self.code, rows.top(height)
        nothing = zeros(code, tile, height)
        if item.first is None and isinstance(item.k_high, int) and item.k_high <= self.k_chunk:
            acc = self.multiply(tile, some, b, item.k_low, item.k_high, nothing)
            store_tile(code, tile, acc, self.sums, at, stride)
            return
        clear = lambda: store_tile(code, tile, nothing, self.sums, at, stride)
        if item.first is None:
            clear()
        else:
            code.branch(item.first, clear)

        def chunk(k: Index, high: Index) -> None:
            acc = self.multiply(tile, some, b, k, high, nothing)
            old = load_tile(code, tile, self.sums, at, stride, height)
            store_tile(code, tile, [numeric.add(code, x, y) for x, y in zip(old, acc)], self.sums, at, stride)

        if self.blocked and self.k_block <= self.k_chunk:
            chunk(item.k_low, item.k_high)
            return
        end = item.k_high
        code.loop(item.k_low, end, self.k_chunk, [], lambda k: chunk(k, code.min(code.add(k, self.k_chunk), end)))

    def multiply(
        self, tile: Tile, rows: Rows, b: Panel, low: Index, high: Index, acc: list[ir.Value]
    ) -> list[ir.Value]:
        """`acc` plus the product over `low .. high` of K."""
        return multiply(self.code, tile, rows, b, low, high, acc)
