"""Emit matmul, linear, packed_linear, grouped_matmul and pack kernels: register tiles over panels of B (see `gemm`).

Where B comes from:
    packed_linear              panels packed ahead of time, read in place
    few rows, B by rows        read in place, line by line: packing would move B twice to use it a few times
    narrow (bf16, i8)          a panel at a time, which is laid out anew for instructions on several of K (`narrow`)
    few rows, B by columns     read in place, as dot products along K (`dot`)
    otherwise                  packed in the kernel, once per block of columns: from memory, or as it is computed
"""

from __future__ import annotations

from mlir import ir

from ...dialects import dims
from ...dialects.dtypes import DTYPES
from ..loops.strided_view import merge, strided_view
from ..registry import register
from . import numeric as numeric
from .code import Index, delinearize
from .computed import computed_matrix
from .copy import copy_line
from .dot import dot_tile
from .epilogue import Epilogue
from .frame import EmitError, Frame, kernels, open_frame
from .gemm import CHUNK_WORK, Gemm, Item
from .grouped_matmul import GroupedMatmul
from .lanes import multiply_lanes, multiply_pairs
from .micro import Panel, Rows, Tile, choose_tile, store_tile
from .narrow import Grouped, Instruction, lay_out, lay_out_columns
from .pack import Matrix, pack_panel, pack_panels
from .problem import Problem, b_matrix, operand_shape, read_problem, row_start
from .rows import PackedRows, packed_rows_size
from .squares import multiply_squares

IN_PLACE_ROWS = 16  # rows up to which an unpacked B with unit stride along N is read in place
# ... by so many columns and lines of B at a time. Long lines count, as prefetchers follow memory: 768 x 3072 times one row
# took 0.19 ms in four items, 0.17 ms in two and 0.15 ms in one; four keep more threads busy.
IN_PLACE_COLUMNS, IN_PLACE_LINES = 1536, 8
PACKED_A_COLUMNS = 128  # with fewer columns a transposed A is read in place
COPIED_COLUMNS = 512  # columns of an item, at most, where A is copied: for so many it is copied once
_UNPACKED = ("rows", "columns", "dot")  # modes that read B where it lies
DOT_ROWS = 4  # rows up to which an unpacked B with unit stride along K is read in place


@register
def emit_matmul(
    module: ir.Module, vector_bits: int = 256, registers: int = 16, by_lane: bool = False,
    bf16_dot: str = "", bf16_square: str = "", i8_dot: str = "", i8_square: str = "",
) -> None:  # fmt: skip
    """Replace each kernel of kind `matmul` by loops over register tiles.

    Before: `%y = "lamina.matmul"(%a, %b)` and a `linalg.generic` epilogue on tensors.
    After: a function on flat memrefs whose inner loop is `vector.fma` on a tile of accumulators.
    """
    narrow = {
        ("bf16", "dot"): Instruction(bf16_dot, "bf16", 2, False),
        ("bf16", "square"): Instruction(bf16_square, "bf16", 4, True),
        ("i8", "dot"): Instruction(i8_dot, "i8", 4, False),
        ("i8", "square"): Instruction(i8_square, "i8", 8, True),
    }
    narrow = {kind: instruction for kind, instruction in narrow.items() if instruction.intrinsic}
    with module.context:
        for function in kernels(module, "matmul"):
            with open_frame(function) as frame:
                root = frame.root("matmul", "linear", "packed_linear", "grouped_matmul", "pack")
                if root.name == "lamina.pack":
                    _emit_pack(frame, root, vector_bits, registers)
                elif root.name == "lamina.grouped_matmul":
                    dtype = str(ir.RankedTensorType(root.results[0].type).element_type)
                    tile = choose_tile(numeric.compute_dtype(dtype), vector_bits, registers, by_lane)
                    GroupedMatmul(frame, tile).emit()
                else:
                    _Matmul(frame, read_problem(frame), vector_bits, registers, by_lane, narrow).emit()


class _Matmul(Gemm):
    """One product."""

    def __init__(
        self, frame: Frame, problem: Problem, vector_bits: int, registers: int, by_lane: bool,
        narrow: dict[tuple[str, str], Instruction],
    ):  # fmt: skip
        self.problem = p = problem
        tile = choose_tile(numeric.compute_dtype(p.dtype), vector_bits, registers, by_lane)
        self.panel_vectors = tile.vectors
        dtype = self._narrow(frame)
        # what wants B laid out anew pays where several tiles of rows read it
        several = not isinstance(p.m, int) or p.m > tile.rows
        grouped = narrow.get((dtype, "square")) or (narrow.get((dtype, "dot")) if dtype == "i8" else None)
        self.grouped = grouped if several else None
        self.mode = self._mode(frame, tile)
        self.grouped = self.grouped if self.mode in ("packed", "rows", "columns") else None
        if self.mode != "pack":
            tile = _widened(tile, p)
        self.pairs = narrow.get((dtype, "dot")) if self.mode == "packed" else None
        self.a_by_k = self.mode in ("pack", "packed") and self._along_rows(tile)
        in_place = p.a_view is not None and (
            bool(self.pairs or self.grouped) or frame.inputs[p.a_view.base].dtype == tile.dtype
        )
        if in_place and p.a_view is not None:
            in_place = not self.a_by_k and (self.mode != "dot" or p.a_view.strides[-1] == 1)
        blocks = {} if in_place else {"column_block": COPIED_COLUMNS}
        if self.mode == "rows" and not self.grouped:
            blocks = self._blocks_in_place()
        super().__init__(frame, p.dtype, p.batch, p.m, p.k, p.n, tile, **blocks)
        self.packs, self.a_in_place = self.mode == "pack", in_place
        if self.grouped:
            step = self.grouped.loaded
            self.k_chunk = -(-self.k_chunk // step) * step
            depth = self.code.mul(self.k_block if self.blocked else self.k, tile.columns)
            element = numeric.element_type(self.grouped.dtype)
            self.groups = self.code.scratch(depth, element, DTYPES[self.grouped.dtype].bytes)
        self.epilogue = Epilogue(frame, p.root, p.dtype, tile, p.lead, (p.n,), p.bias, bias_axis=len(p.lead))

    def _mode(self, frame: Frame, tile: Tile) -> str:
        """Where B comes from: "packed", "rows", "columns" (unit stride along K), "dot" or "pack"."""
        p = self.problem
        if p.panel:
            if p.panel != tile.columns or p.b_view is None:
                raise EmitError(f"kernel '{frame.name}' has panels of {p.panel} columns, not {tile.columns}")
            return "packed"
        view = p.b_view
        # the last panel of an unpacked B reaches back to a whole panel, so there must be one
        if view is None or not isinstance(p.n, int) or p.n < 4 * tile.columns:
            return "pack"
        k_stride, n_stride = view.strides[-2:] if not p.b_is_nk else reversed(view.strides[-2:])
        if self.grouped and n_stride == 1:
            return "rows"
        if self.grouped and k_stride == 1 and isinstance(p.k, int) and p.k % self.grouped.loaded == 0:
            return "columns"
        if not isinstance(p.m, int):
            return "pack"
        if n_stride == 1 and p.m <= IN_PLACE_ROWS and frame.inputs[view.base].dtype == tile.dtype:
            return "rows"
        return "dot" if k_stride == 1 and p.m <= DOT_ROWS else "pack"

    def _blocks_in_place(self) -> dict[str, int]:
        """The columns and lines of an unpacked B to walk at a time."""
        p = self.problem
        assert isinstance(p.n, int)
        columns = min(IN_PLACE_COLUMNS, p.n // 2)  # halved again where items are few: at least four share the work
        return {"column_block": columns, "k_block": IN_PLACE_LINES}

    def _along_rows(self, tile: Tile) -> bool:
        """True if A has its unit stride along rows (a transpose), and it pays to pack it."""
        p = self.problem
        few = (isinstance(p.m, int) and p.m <= tile.rows) or (isinstance(p.n, int) and p.n < PACKED_A_COLUMNS)
        if p.a_view is None or p.a_view.strides[-1] == 1 or few:
            return False
        one = merge(p.rows, p.a_view.strides[len(p.batch) : -1])
        return one is not None and one[1] == 1

    def _narrow(self, frame: Frame) -> str:
        """The type of A and B in memory, if both have the same and A's rows have stride 1, for sums in the tile's type."""
        p = self.problem
        if p.a_view is None or p.b_view is None or p.a_view.strides[-1] != 1:
            return ""
        a, b = (frame.inputs[v.base].dtype for v in (p.a_view, p.b_view))
        # products of bf16 as such: instructions on bf16 are not as exact as sums in f32
        return a if a == b and (a, p.dtype) in (("bf16", "bf16"), ("i8", "i32")) else ""

    def multiply(
        self, tile: Tile, rows: Rows, b: Panel, low: Index, high: Index, acc: list[ir.Value]
    ) -> list[ir.Value]:
        if self.grouped:
            assert isinstance(b, Grouped)
            multiply = multiply_squares if self.grouped.square else multiply_lanes
            return multiply(self.code, tile, self.grouped, rows, b, low, high, acc)
        if self.pairs:
            return multiply_pairs(self.code, tile, self.pairs, rows, b, low, high, acc)
        return super().multiply(tile, rows, b, low, high, acc)

    def begin_item(self, item: Item) -> None:
        if self.mode in _UNPACKED:
            matrix = b_matrix(self.frame, self.problem, item.batch)
            assert isinstance(matrix, Matrix)  # in memory
            self.matrix = matrix

    def pack(self, item: Item) -> None:
        matrix = b_matrix(self.frame, self.problem, item.batch)
        pack_panels(self.code, self.tile, matrix, self.k, self.n, item.column, item.panels, self.packed)

    def first_column(self, first: Index) -> Index:
        if self.mode not in _UNPACKED or self.problem.n % self.tile.columns == 0:  # type: ignore[operator]
            return first
        return self.code.min(first, self.code.sub(self.n, self.tile.columns))

    def b_panel(self, item: Item, j: Index, first: Index) -> Panel:
        code, p = self.code, self.problem
        if self.mode == "pack":
            return super().b_panel(item, j, first)
        if self.mode == "packed":
            assert p.b_view is not None
            buffer = self.frame.inputs[p.b_view.base]
            start = code.add(code.size(p.b_view.offset), code.mul(first, self.k))
            panel = Panel(buffer.memref, start, p.panel, buffer.dtype, self.panel_vectors, code.mul(self.k, p.panel))
        else:
            self.first, matrix = first, self.matrix
            panel = Panel(matrix.buffer, matrix.at(code, 0, first), matrix.k_stride, matrix.dtype)
        if not self.grouped:
            return panel
        of, lines = (self.tile, self.grouped), (item.k_low, item.k_high, self.groups)
        if self.mode == "columns":
            return lay_out_columns(code, *of, self.matrix, first, *lines)
        return lay_out(code, *of, panel, *lines)

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
        p = self.problem
        index = self.lead_index(item, m)
        copy_line(self.frame, p.a, p.dtype, index, low, size, self.a_block, at, self.tile.dtype, self.tile.width)

    def lead_index(self, item: Item, m: Index) -> list[Index]:
        return [*item.batch, *delinearize(self.code, m, self.problem.rows)]


def _widened(tile: Tile, problem: Problem) -> Tile:
    """A tile of fewer rows and more panels side by side, for products of few rows: enough sums to hide FMA's latency."""
    m, n = problem.m, problem.n
    if not isinstance(m, int) or m == 0 or m > tile.rows // 2 or not isinstance(n, int):
        return tile
    panels = -(-n // tile.columns)
    group = next(g for g in (4, 2, 1) if g * m <= tile.rows and panels % g == 0)
    return Tile(m, tile.vectors * group, tile.width, tile.dtype)


def _emit_pack(frame: Frame, root: ir.Operation, vector_bits: int, registers: int) -> None:
    """A kernel around `lamina.pack`: one panel of one weight per item."""
    code, weight = frame.code, root.operands[0]
    view = strided_view(weight, frame.shapes)
    if len(frame.outputs) != 1:
        raise EmitError(f"kernel '{frame.name}' returns more than the packed weight")
    _, out = frame.outputs[0]
    columns = ir.IntegerAttr(root.attributes["columns"]).value
    n, k = operand_shape(frame, weight)
    # packed as it is stored: the width of the vectors that move it is all that matters
    tile = Tile(1, 1, columns, out.dtype)
    width = choose_tile(numeric.compute_dtype(out.dtype), vector_bits, registers).width
    if columns % width == 0 and out.dtype in ("f32", "f64"):
        tile = Tile(1, columns // width, width, out.dtype)
    if view is None:
        matrix = computed_matrix(frame, weight, [], by_k=True)
    else:
        n_stride, k_stride = (code.size(s) for s in view.strides)
        matrix = Matrix(frame.inputs[view.base].memref, out.dtype, code.size(view.offset), k_stride, n_stride)

    def panel(p: Index) -> None:
        first = code.mul(p, columns)
        count = columns if isinstance(n, int) and n % columns == 0 else code.min(columns, code.sub(code.size(n), first))
        pack_panel(code, tile, matrix, 0, code.size(k), first, count, out.memref, code.mul(first, code.size(k)))

    code.loop(frame.begin, frame.end, 1, [], panel)
    work = columns * (k if isinstance(k, int) else 256) * 16
    frame.close(dims.ceildiv(n, columns), max(1, CHUNK_WORK // max(1, work)))
