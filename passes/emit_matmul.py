"""Emit matmul kernels: register tiles over packed panels of B, with fused prologue and epilogue.

One work item is one block of rows times one block of columns of one batch:

    for item in begin .. end:            (batch, column block, row block); row block fastest
        pack the item's columns of B     when the column block changes
        for each `rows`-high tile:       A read in place, or copied to scratch in the compute dtype
            for each panel of columns:   all of K in registers -> tile scratch (L1) -> epilogue, store

With K above `K_BLOCK` the sums of a whole item stay in scratch between blocks of K, and the epilogue follows the last.
The sums go through scratch so that fused code is emitted once however many variants of the register tile there are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from mlir import ir

from ..dialects import dims
from ..dialects.dims import Dim
from . import tiles_numeric as numeric
from .registry import register
from .tiles_code import Index
from .tiles_epilogue import Epilogue
from .tiles_frame import Frame, kernels, open_frame
from .tiles_micro import Panel, Rows, choose_tile, load_tile, multiply, store_tile, zeros
from .tiles_pack import pack_panel
from .tiles_problem import b_matrix, delinearize, read_problem, row_start
from .tiles_values import Values

K_BLOCK = 1024  # elements of K at a time: the tile of A (rows x K_BLOCK) stays in L1
ROW_BLOCK = 192  # rows of an item, at most: its block of A stays in L2
COLUMN_BLOCK = 128  # columns of an item, at most: its panels of B stay in L2


@register
def emit_matmul(module: ir.Module, vector_bits: int = 256, registers: int = 16) -> None:
    """Replace each kernel of kind `matmul` by loops over register tiles.

    Before: `%y = "lamina.matmul"(%a, %b)` and a `linalg.generic` epilogue on tensors.
    After: a function on flat memrefs whose inner loop is `vector.fma` on a tile of accumulators.
    """
    with module.context:
        for function in kernels(module, "matmul"):
            with open_frame(function) as frame:
                _Matmul(frame, vector_bits, registers).emit()


@dataclass(frozen=True)
class _Item:
    """One work item: `rows` of one batch from `row` on, times the panels of the columns from `column` on."""

    batch: list[Index]
    row: Index
    row_end: Index
    column: Index
    columns: Index
    panels: Index
    k_low: Index = 0
    k_high: Index = 0
    first: ir.Value | None = None  # with blocks of K: true in the first


class _Matmul:
    """One kernel."""

    def __init__(self, frame: Frame, vector_bits: int, registers: int):
        self.frame, self.code = frame, frame.code
        self.problem = p = read_problem(frame)
        self.tile = choose_tile(numeric.compute_dtype(p.dtype), vector_bits, registers)
        self.element = numeric.element_type(self.tile.dtype)
        self.row_block = block_size(p.m, ROW_BLOCK, self.tile.rows)
        self.column_block = block_size(p.n, COLUMN_BLOCK, self.tile.columns)
        self.row_blocks, self.column_blocks = dims.ceildiv(p.m, self.row_block), dims.ceildiv(p.n, self.column_block)
        self.blocked = not (isinstance(p.k, int) and 0 < p.k <= K_BLOCK)
        self.k, self.m, self.n = (self.code.size(d) for d in (p.k, p.m, p.n))
        lead = (*p.batch, *p.rows)
        self.epilogue = Epilogue(frame, p.root, p.dtype, p.bias, self.tile.dtype, self.tile.width, lead, p.n)

    def emit(self) -> None:
        code, p, tile = self.code, self.problem, self.tile
        bytes = 8 if tile.dtype in ("f64", "i64") else 4
        self.packed = code.scratch(code.mul(self.k, self.column_block), self.element, bytes)
        self.a_tile = None
        if p.a_view is None or self.frame.inputs[p.a_view.base].dtype != tile.dtype:
            depth = K_BLOCK if self.blocked else self.k
            self.a_tile = code.scratch(code.mul(depth, tile.rows), self.element, bytes)
        sums = self.row_block * self.column_block if self.blocked else tile.rows * tile.columns
        self.sums = code.scratch(sums, self.element, bytes)
        code.loop(self.frame.begin, self.frame.end, 1, [], self._item)
        total = dims.product(p.batch) * self.row_blocks * self.column_blocks
        self.frame.close(total, grain(2 * self.row_block * self.column_block, p.k))

    def _item(self, number: ir.Value) -> None:
        code, p = self.code, self.problem
        row_blocks, column_blocks = code.size(self.row_blocks), code.size(self.column_blocks)
        row = code.mul(code.rem(number, row_blocks), self.row_block)
        outer = code.div(number, row_blocks)
        column = code.mul(code.rem(outer, column_blocks), self.column_block)
        columns = code.min(self.column_block, code.sub(self.n, column))
        item = _Item(
            batch=delinearize(code, code.div(outer, column_blocks), p.batch),
            row=row,
            row_end=code.min(code.add(row, self.row_block), self.m),
            column=column,
            columns=self.column_block if divides(self.column_block, p.n) else columns,
            panels=code.ceildiv(columns, self.tile.columns),
        )
        new_columns = code.either(code.compare("eq", number, self.frame.begin), code.compare("eq", row, 0))
        code.branch(new_columns, lambda: self._pack(item))
        if not self.blocked:
            self._rows_of(replace(item, k_high=self.k))
            return

        def block(k: ir.Value) -> None:
            high = code.min(code.add(k, K_BLOCK), self.k)
            self._rows_of(replace(item, k_low=k, k_high=high, first=code.compare("eq", k, 0)))

        code.loop(0, self.k, K_BLOCK, [], block)
        self._no_k(item)
        code.loop(item.row, item.row_end, 1, [], lambda m: self._write(item, m, item.column, item.columns,
            code.mul(code.sub(m, item.row), self.column_block)))  # fmt: skip

    def _no_k(self, item: _Item) -> None:
        """With K = 0 no block ran: the sums are zero."""
        code = self.code
        if isinstance(self.k, int) and self.k > 0:
            return
        size = code.mul(code.sub(item.row_end, item.row), self.column_block)
        zero = code.constant(0, self.element)

        def clear() -> None:
            code.loop(0, size, 1, [], lambda i: code.store(zero, self.sums, i))

        code.branch(code.compare("eq", self.k, 0), clear)

    def _pack(self, item: _Item) -> None:
        code, width = self.code, self.tile.columns
        matrix = b_matrix(self.frame, self.problem, item.batch)

        def panel(j: ir.Value) -> None:
            first = code.add(item.column, code.mul(j, width))
            at = code.mul(code.mul(j, self.k), width)
            pack_panel(code, self.tile, matrix, self.k, first, self._columns(first), self.packed, at)

        code.loop(0, item.panels, 1, [], panel)

    def _columns(self, first: Index) -> Index:
        """The columns of the panel that starts at column `first`."""
        width = self.tile.columns
        return width if divides(width, self.problem.n) else self.code.min(width, self.code.sub(self.n, first))

    def _rows_of(self, item: _Item) -> None:
        self.code.loop(item.row, item.row_end, self.tile.rows, [], lambda m: self._tile_row(item, m))

    def _tile_row(self, item: _Item, m: Index) -> None:
        """All panels of the tile of rows that starts at `m`."""
        code, tile = self.code, self.tile
        count = tile.rows if divides(tile.rows, self.problem.m) else code.min(tile.rows, code.sub(item.row_end, m))
        rows = self._rows(item, m, count)

        def panel(j: ir.Value) -> None:
            b = Panel(self.packed, code.mul(code.mul(j, self.k), tile.columns), tile.columns)
            at, stride = 0, tile.columns
            if item.first is not None:
                stride = self.column_block
                at = code.add(code.mul(code.sub(m, item.row), stride), code.mul(j, tile.columns))
            code.switch(
                count, row_cases(self.problem.m, tile.rows), lambda h: self._compute(item, rows, b, h, at, stride)
            )
            if item.first is None:
                first = code.add(item.column, code.mul(j, tile.columns))
                columns = self._columns(first)
                code.loop(0, count, 1, [], lambda r: self._write(
                    item, code.add(m, r), first, columns, code.mul(r, tile.columns)))  # fmt: skip

        code.loop(0, item.panels, 1, [], panel)

    def _compute(self, item: _Item, rows: Rows, b: Panel, height: int, at: Index, stride: int) -> None:
        """The product of one register tile, added to its sums in scratch or put there."""
        code, tile = self.code, self.tile
        acc = zeros(code, tile, height)
        if item.first is not None:
            old = lambda: load_tile(code, tile, self.sums, at, stride, height)
            acc = code.branch(item.first, lambda: acc, old, [v.type for v in acc])
        acc = multiply(code, tile, replace(rows, starts=rows.starts[:height]), b, item.k_low, item.k_high, acc)
        store_tile(code, tile, acc, self.sums, at, stride)

    def _rows(self, item: _Item, m: Index, count: Index) -> Rows:
        """The tile's rows of A: in place, or evaluated into scratch in the compute dtype."""
        code, p = self.code, self.problem
        if self.a_tile is None:
            assert p.a_view is not None
            # rows past the end have addresses too, but are never read: the switch takes a lower tile
            starts = [row_start(code, p, item.batch, code.add(m, r)) for r in range(self.tile.rows)]
            return Rows(self.frame.inputs[p.a_view.base].memref, starts, code.size(p.a_view.strides[-1]))
        depth = code.sub(item.k_high, item.k_low)

        def row(r: ir.Value) -> None:
            index = [*item.batch, *delinearize(code, code.add(m, r), p.rows)]
            copy_row(self.frame, p.a, p.dtype, index, item.k_low, depth, self.a_tile, code.mul(r, depth), self.tile)

        code.loop(0, count, 1, [], row)
        # the loops over k run from k_low; the scratch starts at 0
        return Rows(self.a_tile, [code.sub(code.mul(depth, r), item.k_low) for r in range(self.tile.rows)])

    def _write(self, item: _Item, m: Index, n: Index, columns: Index, at: Index) -> None:
        lead = [*item.batch, *delinearize(self.code, m, self.problem.rows)]
        self.epilogue.emit(lead, n, columns, self.sums, at)


def copy_row(frame, tensor, dtype, index, low, size, out, at, tile) -> None:  # noqa: ANN001
    """Evaluate `tensor[*index, low : low + size]` into scratch `out[at ...]` in the tile's dtype."""
    code = frame.code
    names = [code.register(f"@a{d}", x) for d, x in enumerate(index)]

    def element(k: Index, width: int) -> None:
        position = code.register("@k", code.add(k, low))
        x = Values(frame, {}, "@k", width).at(tensor, (*names, position))
        x = numeric.spread(code, numeric.convert(code, x, dtype, tile.dtype), width)
        (code.store if width == 1 else code.vstore)(x, out, code.add(at, k))

    whole = code.mul(code.div(size, tile.width), tile.width)
    code.loop(0, whole, tile.width, [], lambda k: element(k, tile.width))
    code.loop(whole, size, 1, [], lambda k: element(k, 1))


def block_size(size: Dim, limit: int, unit: int) -> int:
    """The size of equal blocks of at most `limit`, a multiple of `unit`; `limit` (rounded down) for a symbolic size."""
    most = max(1, limit // unit)
    if not isinstance(size, int):
        return most * unit
    units = max(1, -(-size // unit))
    blocks = -(-units // most)
    return -(-units // blocks) * unit


def row_cases(m: Dim, rows: int) -> list[int]:
    """The heights that tiles can have; the full one first."""
    if not isinstance(m, int):
        return [rows, *range(1, rows)]
    return ([rows] if m >= rows else []) + ([m % rows] if m % rows else [])


def divides(unit: int, size: Dim) -> bool:
    """True if `size` is known to be a multiple of `unit`."""
    return isinstance(size, int) and size % unit == 0


def grain(work: int, k: Dim) -> int:
    """Items per chunk of at least 1 Mflop (20 us), when an item does `work * k`."""
    return max(1, 1_000_000 // max(1, work * (k if isinstance(k, int) else 256)))
