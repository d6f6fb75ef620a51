"""Emit matmul and linear kernels: register tiles over packed panels of B (see `tiles_gemm`)."""

from __future__ import annotations

from mlir import ir

from .registry import register
from .tiles_code import Index, delinearize
from .tiles_copy import copy_line
from .tiles_epilogue import Epilogue
from .tiles_frame import Frame, kernels, open_frame
from .tiles_gemm import Gemm, Item
from .tiles_micro import Rows
from .tiles_pack import pack_panel
from .tiles_problem import b_matrix, read_problem, row_start


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


class _Matmul(Gemm):
    """One kernel."""

    def __init__(self, frame: Frame, vector_bits: int, registers: int):
        self.problem = p = read_problem(frame)
        super().__init__(frame, p.dtype, p.batch, p.m, p.k, p.n, vector_bits, registers)
        self.a_in_place = p.a_view is not None and frame.inputs[p.a_view.base].dtype == self.tile.dtype
        self.epilogue = Epilogue(frame, p.root, p.dtype, self.tile, p.lead, (p.n,), p.bias, bias_axis=len(p.lead))

    def begin_columns(self, item: Item) -> None:
        self.matrix = b_matrix(self.frame, self.problem, item.batch)

    def pack_panel(self, item: Item, first: Index, columns: Index, at: Index) -> None:
        pack_panel(self.code, self.tile, self.matrix, self.k, first, columns, self.packed, at)

    def a_rows(self, item: Item, m: Index) -> Rows:
        code, p = self.code, self.problem
        assert p.a_view is not None
        # rows past the end have addresses too, but are never read: a lower tile takes the last rows
        starts = [row_start(code, p, item.batch, code.add(m, r)) for r in range(self.tile.rows)]
        return Rows(self.frame.inputs[p.a_view.base].memref, starts, code.size(p.a_view.strides[-1]))

    def a_copy(self, item: Item, m: Index, low: Index, size: Index, at: Index) -> None:
        p = self.problem
        index = self.lead_index(item, m)
        copy_line(self.frame, p.a, p.dtype, index, low, size, self.a_tile, at, self.tile.dtype, self.tile.width)

    def lead_index(self, item: Item, m: Index) -> list[Index]:
        return [*item.batch, *delinearize(self.code, m, self.problem.rows)]
