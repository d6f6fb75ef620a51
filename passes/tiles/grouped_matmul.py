"""Products of groups of rows, each with a matrix of its own (the experts of a mixture): the kernel of `grouped_matmul`.

    y[s, n] = sum_k x[s, k] * w[g, k, n]        ends[g - 1] <= s < ends[g]; 0 past the last end

Where groups end is known when the kernel runs. Work items are blocks of columns times *slots*, and a group takes as many
slots as it has blocks of rows: at most `S // row_block + G + 1` in all, with the rows past the last end as one more group
whose K is 0. An item finds its group by walking `ends`, some nanoseconds beside the microseconds of its product.
A matrix is packed once a block of columns, and only if rows want it; few rows read it in place. Those of
`packed_grouped_matmul` are packed already.
"""

from __future__ import annotations

from mlir import ir

from ...dialects import dims
from ...dialects.dims import Dim
from ..loops.strided_view import strided_view
from .code import Index
from .computed import Computed, computed_matrix
from .copy_line import Line, Place, copy_line
from .dot import dot_tile
from .epilogue import Epilogue
from .frame import EmitError, Frame
from .gemm import Gemm, Item
from .micro import Panel, Rows, Tile, store_tile
from .pack import Matrix, pack_panels
from .problem import element_offset, operand_shape
from .values import Values

# Rows a group, on average, up to which matrices with unit stride along K are read in place: packing moves them twice. 16
# rows in 8 groups of 512 x 1024 took 0.49 ms in place, 1.26 ms packed, and torch 1.2 ms.
DOT_ROWS = 4


class GroupedMatmul(Gemm):
    """One kernel around `grouped_matmul`."""

    def __init__(self, frame: Frame, tile: Tile):
        self.root = root = frame.root("grouped_matmul", "packed_grouped_matmul")
        self.x, self.w, self.ends = root.operands
        self.s, k = operand_shape(frame, self.x)
        self.count, *sizes = operand_shape(frame, self.w)
        n = sizes[-1]
        self.packed_before = root.name == "lamina.packed_grouped_matmul"
        if self.packed_before:
            if n != tile.columns:
                raise EmitError(f"kernel '{frame.name}' has panels of {n} columns, not {tile.columns}")
            n = n * sizes[0]
        dtype = str(ir.RankedTensorType(root.results[0].type).element_type)
        # a group's rows are known when the kernel runs, whether or not their sum is known now
        rows = frame.code.register("@rows", frame.code.size(self.s))
        super().__init__(frame, dtype, (), rows, k, n, tile)
        self.groups, self.slots = self.code.size(self.count), dims.floordiv(self.s, self.row_block) + self.count + 1
        self.x_view, self.w_view = (strided_view(v, frame.shapes) for v in (self.x, self.w))
        self.a_in_place = self.x_view is not None and frame.inputs[self.x_view.base].dtype == tile.dtype
        if self.packed_before and self.w_view is None:
            raise EmitError(f"kernel '{frame.name}' computes matrices that are packed")
        along_k = self.w_view is not None and self.w_view.strides[1] == 1
        few = isinstance(self.s, int) and isinstance(self.count, int) and self.s <= DOT_ROWS * self.count
        a_along_k = self.x_view is None or not self.a_in_place or self.x_view.strides[1] == 1
        self.packs = self.padded = not self.packed_before and not (few and along_k and a_along_k)
        self.epilogue = Epilogue(frame, root, dtype, tile, (self.s,), (n,))

    def items(self) -> Dim:
        return self.column_blocks * self.slots

    def locate(self, number: ir.Value) -> tuple[Item, ir.Value]:
        code = self.code
        slots = code.size(self.slots)
        slot = code.rem(number, slots)
        column = code.mul(code.div(number, slots), self.column_block)
        columns = code.min(self.column_block, code.sub(self.n, column))
        rows = code.size(self.s)

        def part(g: Index, end: Index, state: tuple[Index, ...]) -> tuple[Index, ...]:
            """The state after the group `g`, which ends at row `end`."""
            slot_of, start, group, first, row, row_end = state
            block = code.sub(slot, slot_of)
            blocks = code.ceildiv(code.sub(end, start), self.row_block)
            here = code.both(code.compare("ge", block, 0), code.compare("lt", block, blocks))
            at = code.add(start, code.mul(block, self.row_block))
            found = (g, slot_of, at, code.min(code.add(at, self.row_block), end))
            old = (group, first, row, row_end)
            return code.add(slot_of, blocks), end, *(code.select(here, new, o) for new, o in zip(found, old))

        def walk(g: ir.Value, *state: ir.Value) -> list[ir.Value]:
            end = code.min(code.max(self._end(g), state[1]), rows)
            return [code.value(v) for v in part(g, end, state)]

        state = code.loop(0, self.groups, 1, [code.value(0)] * 6, walk)
        _, _, group, first, row, row_end = part(self.groups, rows, tuple(state))
        wanted = code.both(code.compare("lt", row, row_end), code.compare("lt", group, self.groups))
        fresh = code.either(code.compare("eq", number, self.frame.begin), code.compare("eq", slot, first))
        item = Item(
            batch=[group],
            row=row,
            row_end=row_end,
            column=column,
            columns=columns,
            panels=code.ceildiv(columns, self.tile.columns),
            depth=code.select(code.compare("lt", group, self.groups), self.k, 0),
        )
        return item, code.both(fresh, wanted)

    def _end(self, group: ir.Value) -> ir.Value:
        at = self.code.register("@g", group)
        return self.code.op("arith.index_cast", [self.code.index], [Values(self.frame).at(self.ends, (at,))])

    def begin_item(self, item: Item) -> None:
        if self.packed_before:
            self.group = item.batch
        else:
            self.matrix = self._matrix(item)

    def _matrix(self, item: Item) -> Matrix | Computed:
        """The matrix of the item's group."""
        view, code = self.w_view, self.code
        if view is None:
            return computed_matrix(self.frame, self.w, item.batch, by_k=False)
        buffer, (_, k_stride, n_stride) = self.frame.inputs[view.base], view.strides
        return Matrix(
            buffer.memref,
            buffer.dtype,
            element_offset(code, view, item.batch),
            code.size(k_stride),
            code.size(n_stride),
        )

    def pack(self, item: Item) -> None:
        pack_panels(self.code, self.tile, self.matrix, self.k, self.n, item.column, item.panels, self.packed)

    def b_panel(self, item: Item, j: Index, first: Index) -> Panel:
        if self.packs:
            return super().b_panel(item, j, first)
        if self.packed_before:
            assert self.w_view is not None
            buffer, start = self.frame.inputs[self.w_view.base], element_offset(self.code, self.w_view, self.group)
            start = self.code.add(start, self.code.mul(first, self.k))
            return Panel(buffer.memref, start, self.tile.columns, buffer.dtype)
        self.first, matrix = first, self.matrix
        assert isinstance(matrix, Matrix)  # in memory
        return Panel(matrix.buffer, matrix.at(self.code, 0, first), matrix.k_stride, matrix.dtype)

    def compute(self, item: Item, rows: Rows, b: Panel, height: int, at: Index, stride: int, tile: Tile) -> None:
        if self.packs or self.packed_before:
            super().compute(item, rows, b, height, at, stride, tile)
            return
        code, matrix = self.code, self.matrix
        assert isinstance(matrix, Matrix)
        acc = dot_tile(code, tile, rows.top(height), matrix, self.first, item.depth, code.sub(self.n, 1))
        store_tile(code, tile, acc, self.sums, at, stride)

    def a_rows(self, item: Item, m: Index) -> Rows:
        code, view = self.code, self.x_view
        if not self.a_in_place or view is None:
            return super().a_rows(item, m)
        # rows past the end have addresses too, but are never read: a lower tile takes the last rows
        starts = [element_offset(code, view, [code.add(m, r)]) for r in range(self.tile.rows)]
        return Rows(self.frame.inputs[view.base].memref, starts, code.size(view.strides[1]))

    def a_copy(self, item: Item, m: Index, low: Index, size: Index, at: Index) -> None:
        line, to = Line(self.x, self.dtype, [m], low), Place(self.a_block, self.a_dtype, at)
        copy_line(self.frame, line, to, size, self.tile.width)

    def lead_index(self, item: Item, m: Index) -> list[Index]:
        return [m]
