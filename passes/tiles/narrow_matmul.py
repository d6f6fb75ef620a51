"""A product of narrow elements (bf16, i8, u8) by instructions that multiply several along K (`narrow`).

B is in groups of such elements (`groups`): packed so ahead of time, or laid out a panel at a time, which pays where several
tiles of rows read the panel. A is read in place, or copied where the instruction takes another type, and where K must be
padded with zeros.
"""

from __future__ import annotations

from collections.abc import Mapping

from mlir import ir

from ...dialects.dtypes import DTYPES
from . import numeric
from .code import Index
from .copy_line import Line, Place, copy_line
from .frame import EmitError, Frame
from .gemm import Item
from .groups import Grouped, lay_out, lay_out_columns, padded
from .lanes import multiply_lanes
from .matmul import COPIED_COLUMNS, Matmul
from .micro import Panel, Rows, Tile
from .narrow import Instruction
from .problem import Problem
from .squares import multiply_squares


def narrow_instruction(
    frame: Frame, problem: Problem, tile: Tile, known: Mapping[tuple[str, str], Instruction]
) -> Instruction | None:
    """The instruction for a product, if there is one for its operands as they lie in memory, and it pays."""
    p = problem
    if p.b_view is None:
        return None
    b = frame.inputs[p.b_view.base].dtype
    if p.depth > 1:
        found = known.get((p.a_dtype, b))
        if found is None or found.depth != p.depth:
            raise EmitError(f"kernel '{frame.name}' has weights in groups of {p.depth}, for another machine")
        return found
    if p.a_view is None or p.a_view.strides[-1] != 1:
        return None
    a = frame.inputs[p.a_view.base].dtype
    found = known.get((a, b))
    # products of bf16 as such: instructions on bf16 are not as exact as sums in f32
    if found is None or p.dtype != ("bf16" if a == "bf16" else "i32"):
        return None
    several = not isinstance(p.m, int) or p.m > tile.rows
    return found if several and (p.panel or _unpacked_mode(p, tile, found)) else None


def _unpacked_mode(problem: Problem, tile: Tile, instruction: Instruction) -> str:
    """The way that an unpacked B can be laid out: by "rows" (unit stride along N), by "columns" (along K), or ""."""
    p = problem
    # the last panel of an unpacked B reaches back to a whole panel, so there must be one
    if not isinstance(p.n, int) or p.n < 4 * tile.columns:
        return ""
    k_stride, n_stride = p.b_strides
    if n_stride == 1:
        return "rows"
    return "columns" if k_stride == 1 and isinstance(p.k, int) and p.k % instruction.unit == 0 else ""


class NarrowMatmul(Matmul):
    """One product."""

    def __init__(self, frame: Frame, problem: Problem, tile: Tile, instruction: Instruction):
        self.instruction = instruction
        super().__init__(frame, problem, tile)
        code, bytes = self.code, DTYPES[instruction.b].bytes
        self.a_dtype = instruction.a
        if problem.depth == 1:
            depth = padded(code, self.k_block if self.blocked else self.k, instruction.unit)
            element = numeric.element_type(instruction.b)
            self.groups = code.scratch(code.mul(depth, self.tile.columns), element, bytes)

    def b_mode(self, frame: Frame, tile: Tile) -> str:
        return (
            super().b_mode(frame, tile) if self.problem.panel else _unpacked_mode(self.problem, tile, self.instruction)
        )

    def reads_a_in_place(self, frame: Frame, tile: Tile) -> bool:
        view, k = self.problem.a_view, self.problem.k
        if view is None or view.strides[-1] != 1 or self.instruction.shifted:
            return False
        whole = isinstance(k, int) and k % self.instruction.unit == 0
        return whole and frame.inputs[view.base].dtype == self.instruction.a

    def blocks(self, a_in_place: bool) -> dict[str, int]:
        return {"k_unit": self.instruction.unit} | ({} if a_in_place else {"column_block": COPIED_COLUMNS})

    def packs_a(self, tile: Tile) -> bool:
        return False

    def b_panel(self, item: Item, j: Index, first: Index) -> Panel:
        code, p, of = self.code, self.problem, (self.tile, self.instruction)
        if p.depth > 1:
            found = self.packed_panel(first, padded(code, self.k, self.instruction.unit))
            return Grouped(found.buffer, found.start, found.stride, found.dtype, next=found.next)
        lines = (item.k_low, item.k_high, self.groups)
        if self.mode == "columns":
            return lay_out_columns(code, *of, self.matrix, first, *lines)
        return lay_out(code, *of, super().b_panel(item, j, first), *lines)

    def a_line(self, depth: Index) -> Index:
        return padded(self.code, depth, self.instruction.unit)

    def a_copy(self, item: Item, m: Index, low: Index, size: Index, at: Index) -> None:
        code, dtype = self.code, self.a_dtype
        line = Line(self.problem.a, self.problem.a_dtype, self.lead_index(item, m), low)
        width = self.instruction.register // DTYPES[dtype].bytes
        shift = -128 if self.instruction.shifted else 0  # as i8; the same bits as 128 more
        copy_line(self.frame, line, Place(self.a_block, dtype, at), size, width, shift=shift)
        zero = code.constant(0, numeric.element_type(dtype))
        end = self.a_line(size)
        if end is not size:
            code.loop(size, end, 1, [], lambda k: code.store(zero, self.a_block, code.add(at, k)))

    def multiply(
        self, tile: Tile, rows: Rows, b: Panel, low: Index, high: Index, acc: list[ir.Value]
    ) -> list[ir.Value]:
        assert isinstance(b, Grouped)
        multiply = multiply_squares if self.instruction.square else multiply_lanes
        return multiply(self.code, tile, self.instruction, rows, b, low, high, acc)
