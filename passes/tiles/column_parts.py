"""A product whose result is read in equal parts of its columns, element by element: gates of an LSTM, gated linear units.

    g = x @ w.T  [M, parts * n];   y = f(g[:, :n], g[:, n : 2 * n], ...)  [M, n]

An item is the same columns of every part, so that all that an element of `y` needs is in its sums. Panels of packed weights are
read where they lie. On the CPU a step of an LSTM is one region of threads then, and each thread makes the state whose gates it has.
"""

from __future__ import annotations

from collections.abc import Sequence

from mlir import ir

from ...dialects.dims import Dim
from .code import Index
from .epilogue import Epilogue
from .frame import EmitError, Frame
from .gemm import Item
from .matmul import Matmul
from .micro import Tile
from .problem import Problem
from .values import Lane, Override


def parts_of_columns(frame: Frame, problem: Problem) -> int:
    """In how many parts the kernel's results read the columns of the product: 1 where they have as many."""
    shape, n = frame.outputs[0][1].shape, problem.n
    if shape[:-1] != problem.lead or not isinstance(n, int) or not isinstance(shape[-1], int) or shape[-1] in (0, n):
        return 1
    return n // shape[-1] if n % shape[-1] == 0 else 1


class PartedMatmul(Matmul):
    """One product by packed weights, and results of `1 / parts` of its columns."""

    def __init__(self, frame: Frame, problem: Problem, tile: Tile):
        self.parts = parts_of_columns(frame, problem)
        assert isinstance(problem.n, int)
        self.part = problem.n // self.parts
        super().__init__(frame, problem, tile)
        columns = self.tile.columns
        if self.mode != "packed" or self.part % columns:
            raise EmitError(f"kernel '{frame.name}' reads parts of columns that are not packed, or not whole panels")
        panels, most = self.part // columns, max(1, self.column_block // (self.parts * columns))
        self.width = columns * max(d for d in range(1, most + 1) if panels % d == 0)  # columns of each part in an item
        self.column_block = self.parts * self.width
        self.keeps, self.kept_rows = True, self.row_block
        assert isinstance(self.epilogue, _PartedEpilogue)
        self.epilogue.distance = self.width
        # vectors side by side: one waits for the last function of gates most of the time
        self.epilogue.lanes = problem.panel

    def make_epilogue(self, tile: Tile) -> Epilogue:
        p = self.problem
        return _PartedEpilogue(self.frame, p.root, p.dtype, tile, p.lead, (self.part,), p.bias, bias_axis=len(p.lead))

    def panel_column(self, item: Item, j: Index) -> Index:
        code, columns = self.code, self.tile.columns
        part, panel = code.div(j, self.width // columns), code.rem(j, self.width // columns)
        return code.add(code.mul(part, self.part), code.div(item.column, self.parts), code.mul(panel, columns))

    def write(self, item: Item) -> None:
        code = self.code

        def row(m: Index) -> None:
            at = code.mul(code.sub(m, item.row), self.column_block)
            self.epilogue.emit(self.lead_index(item, m), code.div(item.column, self.parts), self.width, self.sums, at)

        code.loop(item.row, item.row_end, 1, [], row)


class _PartedEpilogue(Epilogue):
    """Results of a part's columns; the sums of the parts lie `distance` from each other."""

    distance = 0

    def root_values(self, lane: Lane, index: Sequence[Dim], sums: ir.Value, at: Index) -> Override:
        made: dict[int, ir.Value] = {}

        def value(wanted: Sequence[Dim]) -> ir.Value:
            (part,), first = self.columns, index[-1]
            ahead = wanted[-1] - first
            if not isinstance(ahead, int) or not isinstance(part, int) or ahead % part:
                raise EmitError(f"kernel '{self.frame.name}' reads its product elsewhere than in parts of columns")
            number = ahead // part
            if number not in made:
                made[number] = self.root_value(lane, wanted, sums, self.code.add(at, number * self.distance))
            return made[number]

        return value
