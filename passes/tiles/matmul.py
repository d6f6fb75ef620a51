"""One matrix product by register tiles (see `gemm`): where A and B come from.

Where B comes from:
    packed_linear              panels packed ahead of time, read in place
    few rows, B by rows        read in place, line by line: packing would move B twice to use it a few times
    few rows, B by columns     read in place, as dot products along K (`dot`)
    otherwise                  packed in the kernel, once per block of columns: from memory, or as it is computed

Products of narrow elements by their own instructions are `narrow_matmul`.
"""

from __future__ import annotations

from mlir import ir

from ..loops.strided_view import merge
from .code import Index, delinearize
from .copy_line import Line, Place, copy_line
from .dot import dot_tile
from .epilogue import Epilogue
from .fetch import fetching
from .frame import EmitError, Frame
from .gemm import Gemm, Item
from .lanes import multiply_pairs
from .micro import Panel, Rows, Tile, fitted, store_tile
from .narrow import Instruction
from .pack import Matrix, pack_panels
from .problem import Problem, b_matrix, row_start
from .rows import PackedRows, packed_rows_size

IN_PLACE_ROWS = 16  # rows up to which an unpacked B with unit stride along N is read in place
# ... by so many columns and lines of B at a time. Long lines count, as prefetchers follow memory: 768 x 3072 times one row
# took 0.19 ms in four items, 0.17 ms in two and 0.15 ms in one; four keep more threads busy.
IN_PLACE_COLUMNS, IN_PLACE_LINES = 1536, 8
PACKED_A_COLUMNS = 128  # with fewer columns a transposed A is read in place
COPIED_COLUMNS = 512  # columns of an item, at most, where A is copied: for so many it is copied once
DOT_ROWS = 4  # rows up to which an unpacked B with unit stride along K is read in place


class Matmul(Gemm):
    """One product; `pairs` is an instruction for packed weights by rows."""

    parts = 1  # in which the results read the columns (`column_parts`)

    def __init__(self, frame: Frame, problem: Problem, tile: Tile, pairs: Instruction | None = None):
        self.problem = p = problem
        self.panel_vectors = tile.vectors
        self.mode = self.b_mode(frame, tile)
        if self.mode != "pack":
            tile = _widened(tile, p, self.parts)
        if isinstance(p.m, int):
            tile = fitted(tile, p.m)
        self.pairs = pairs if self.mode == "packed" else None
        self.a_by_k = self.mode in ("pack", "packed") and self.packs_a(tile)
        in_place = self.reads_a_in_place(frame, tile)
        super().__init__(frame, p.dtype, p.batch, p.m, p.k, p.n, tile, **self.blocks(in_place))
        self.packs = self.padded = self.mode == "pack"
        self.a_in_place = in_place
        self.epilogue = self.make_epilogue(tile)

    def make_epilogue(self, tile: Tile) -> Epilogue:
        """What writes the results."""
        p = self.problem
        return Epilogue(self.frame, p.root, p.dtype, tile, p.lead, (p.n,), p.bias, bias_axis=len(p.lead))

    def b_mode(self, frame: Frame, tile: Tile) -> str:
        """Where B comes from: "packed", "rows", "dot" or "pack"."""
        p, view = self.problem, self.problem.b_view
        if p.panel:
            if p.panel != tile.columns or view is None:
                raise EmitError(f"kernel '{frame.name}' has panels of {p.panel} columns, not {tile.columns}")
            return "packed"
        # the last panel of an unpacked B reaches back to a whole panel, so there must be one
        if view is None or not isinstance(p.n, int) or p.n < 4 * tile.columns or not isinstance(p.m, int):
            return "pack"
        k_stride, n_stride = p.b_strides
        if n_stride == 1 and p.m <= IN_PLACE_ROWS and frame.inputs[view.base].dtype == tile.dtype:
            return "rows"
        return "dot" if k_stride == 1 and p.m <= DOT_ROWS else "pack"

    def reads_a_in_place(self, frame: Frame, tile: Tile) -> bool:
        """True if tiles read A where it lies."""
        view = self.problem.a_view
        if view is None or self.a_by_k or not (self.pairs or frame.inputs[view.base].dtype == tile.dtype):
            return False
        return self.mode != "dot" or view.strides[-1] == 1

    def blocks(self, a_in_place: bool) -> dict[str, int]:
        """The columns, and lines of B, to walk at a time, where they are not the usual ones."""
        if self.mode != "rows":
            return {} if a_in_place else {"column_block": COPIED_COLUMNS}
        assert isinstance(self.problem.n, int)
        # halved again where items are few: at least four share the work
        return {"column_block": min(IN_PLACE_COLUMNS, self.problem.n // 2), "k_block": IN_PLACE_LINES}

    def packs_a(self, tile: Tile) -> bool:
        """True if A has its unit stride along rows (a transpose), and it pays to pack it."""
        p = self.problem
        few = (isinstance(p.m, int) and p.m <= tile.rows) or (isinstance(p.n, int) and p.n < PACKED_A_COLUMNS)
        if p.a_view is None or p.a_view.strides[-1] == 1 or few:
            return False
        one = merge(p.rows, p.a_view.strides[len(p.batch) : -1])
        return one is not None and one[1] == 1

    def multiply(
        self, tile: Tile, rows: Rows, b: Panel, low: Index, high: Index, acc: list[ir.Value]
    ) -> list[ir.Value]:
        if self.pairs:
            return multiply_pairs(self.code, tile, self.pairs, rows, b, low, high, acc)
        return super().multiply(tile, rows, b, low, high, acc)

    def begin_item(self, item: Item) -> None:
        if not self.packs and self.mode != "packed":
            matrix = b_matrix(self.frame, self.problem, item.batch)
            assert isinstance(matrix, Matrix)  # in memory
            self.matrix = matrix

    def pack(self, item: Item) -> None:
        matrix = b_matrix(self.frame, self.problem, item.batch)
        pack_panels(self.code, self.tile, matrix, self.k, self.n, item.column, item.panels, self.packed)

    def first_column(self, first: Index) -> Index:
        if self.packs or self.mode == "packed" or self.problem.n % self.tile.columns == 0:  # type: ignore[operator]
            return first
        return self.code.min(first, self.code.sub(self.n, self.tile.columns))

    def b_panel(self, item: Item, j: Index, first: Index) -> Panel:
        if self.packs:
            return super().b_panel(item, j, first)
        if self.mode == "packed":
            return self.packed_panel(first, self.k)
        self.first, matrix = first, self.matrix
        return Panel(matrix.buffer, matrix.at(self.code, 0, first), matrix.k_stride, matrix.dtype)

    def fetching(self, item: Item, m: Index, b: Panel) -> Panel:
        if self.mode != "packed" or self.pairs or self.tile.by_lane:
            return b
        code, view, columns = self.code, self.problem.b_view, self.problem.panel
        assert view is not None
        next_panel = code.add(b.start, code.mul(code.add(self.k, item.k_low), columns))
        end = code.add(code.size(view.offset), code.mul(code.mul(code.ceildiv(self.n, columns), columns), self.k))
        tile, tiles = code.div(code.sub(m, item.row), self.tile.rows), self.row_block // self.tile.rows
        return fetching(code, b, next_panel, end, tile, tiles, item.k_low, self.k_block if self.blocked else self.k)

    def packed_panel(self, first: Index, lines: Index) -> Panel:
        """The panel of packed weights, of so many lines each, that begins at column `first`."""
        code, view, columns = self.code, self.problem.b_view, self.problem.panel
        assert view is not None
        buffer = self.frame.inputs[view.base]
        start = code.add(code.size(view.offset), code.mul(first, lines))
        return Panel(buffer.memref, start, columns, buffer.dtype, self.panel_vectors, code.mul(lines, columns))

    def compute(self, item: Item, rows: Rows, b: Panel, height: int, at: Index, stride: int, tile: Tile) -> None:
        if self.mode != "dot":
            super().compute(item, rows, b, height, at, stride, tile)
            return
        acc = dot_tile(self.code, self.tile, rows.top(height), self.matrix, self.first, self.k)
        store_tile(self.code, self.tile, acc, self.sums, at, stride)

    def a_rows(self, item: Item, m: Index) -> Rows:
        code, p = self.code, self.problem
        if self.a_by_k:
            return self.packed_a.rows(m)
        if not self.a_in_place:
            return super().a_rows(item, m)
        assert p.a_view is not None
        # rows past the end have addresses too, but are never read: a lower tile takes the last rows
        starts = [row_start(code, p, item.batch, code.add(m, r)) for r in range(self.tile.rows)]
        return Rows(self.frame.inputs[p.a_view.base].memref, starts, code.size(p.a_view.strides[-1]))

    def a_size(self, depth: Index) -> Index:
        if self.a_by_k:
            return packed_rows_size(self.code, self.tile, depth, self.row_block)
        return super().a_size(depth)

    def copy_rows(self, item: Item) -> None:
        view, code = self.problem.a_view, self.code
        if not self.a_by_k or view is None:
            super().copy_rows(item)
            return
        buffer = self.frame.inputs[view.base]
        start = row_start(code, self.problem, item.batch, 0)
        matrix = Matrix(buffer.memref, buffer.dtype, start, code.size(view.strides[-1]), 1)
        self.packed_a = PackedRows(code, self.tile, self.a_block, item.row, item.k_low, item.k_high)
        self.packed_a.fill(matrix, item.row_end, self.m)

    def a_copy(self, item: Item, m: Index, low: Index, size: Index, at: Index) -> None:
        line = Line(self.problem.a, self.problem.a_dtype, self.lead_index(item, m), low)
        copy_line(self.frame, line, Place(self.a_block, self.a_dtype, at), size, self.tile.width)

    def lead_index(self, item: Item, m: Index) -> list[Index]:
        return [*item.batch, *delinearize(self.code, m, self.problem.rows)]


def _widened(tile: Tile, problem: Problem, parts: int) -> Tile:
    """A tile of fewer rows and more panels side by side, for products of few rows: enough sums to hide FMA's latency."""
    m, n = problem.m, problem.n
    if not isinstance(m, int) or m == 0 or m > tile.rows // 2 or not isinstance(n, int):
        return tile
    panels = -(-n // tile.columns) // parts
    group = next(g for g in (4, 2, 1) if g * m <= tile.rows and panels % g == 0)
    return Tile(m, tile.vectors * group, tile.width, tile.dtype)
