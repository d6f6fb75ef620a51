"""Rows whose length `n` is known when they are launched: a stage for each way to take them, of which one runs.

short     whole vectors, up to SHORT elements: a wave a row, in registers
others    a block a row: by vectors where n is a multiple of their lanes, else by those that rows begin anywhere in
          (shifted_rows.py), or element by element; vectors in registers, of so many threads and elements for each as BLOCKS
          has, a stage for each size: each loop reads longer rows again

A grid is an expression over sizes, and a stage whose grid is empty is not launched: `when` of RowStage is 0 or 1.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlir import ir

from ....dialects import dims
from ....dialects.dims import Dim
from ...loops.tensor_graph import TensorGraph
from ..gpu_kernel import GpuKernel
from ..probe import MOST_LANES
from .emit_rows import SHIFTED_ROW, RowStage, row_width, shifted_form
from .row_plan import RowForm, RowPlan
from .stored import Stored

SHORT = 1024  # elements
BLOCKS = (256, 16), (512, 16), (512, 32)  # threads of another row, and the elements that each may hold


def emit_symbolic_rows(kernel: GpuKernel, stored: Stored, plan: RowPlan) -> None:
    """Write the results of `plan`, whose rows have a length that is an expression over symbols."""
    given = RowForm(plan, kernel.graph, row_width(kernel.graph, stored, plan))
    wide = given if given.width > 1 else _in_vectors(given, stored)
    short: Dim = 0
    if wide is not None:
        short = _is_short(plan.length, wide.width)
        rows = RowStage(kernel, stored, plan.count, kernel.wave, short)
        _divide(rows, given, wide)
        rows.write(wide, SHORT // (kernel.wave * wide.width))
        rows.stage.finish()
    blocks = _Blocks(given, wide, shifted_form(kernel.graph, stored, plan, 1) if given.width == 1 else None)
    sizes = BLOCKS if wide is not None and _is_held(plan) else BLOCKS[:1]
    none = 1 - dims.dim_min(1, plan.length) if len(sizes) > 1 else 0  # rows of which nobody must load a first element
    left = 1 - short - none
    for threads, held in sizes[:-1]:
        assert wide is not None
        longer = dims.dim_min(1, dims.floordiv(plan.length, threads * held + wide.width))
        blocks.emit(RowStage(kernel, stored, plan.count, threads, left - longer), held, longer=False)
        left = longer
    threads, held = sizes[-1]
    blocks.emit(RowStage(kernel, stored, plan.count, threads, left + none), held, longer=True)


@dataclass
class _Blocks:
    """The forms of a row for a block: as it is known, as whole vectors, and as vectors that it begins anywhere in."""

    given: RowForm
    wide: RowForm | None
    shifted: RowForm | None

    def emit(self, rows: RowStage, held: int, longer: bool) -> None:
        """Write a stage whose threads may hold `held` elements of a row; `longer`: some rows may have more, or none."""
        given, wide = self.given, self.wide
        if wide is None or wide is given:
            _write(rows, given, held, longer)
        else:
            whole = _divide(rows, given, wide)
            rows.stage.b.branch(whole, [], lambda: _write(rows, wide, held, longer), lambda: self._others(rows, held))
        rows.stage.finish()

    def _others(self, rows: RowStage, held: int) -> list[ir.Value]:
        """Rows that are no whole vectors: not the shortest ones, where a thread's element beside its vectors is much."""
        given, shifted, b = self.given, self.shifted, rows.stage.b
        if shifted is None:
            return rows.write(given, 0)
        size, least = b.dim(given.plan.length), b.constant(SHIFTED_ROW, b.index)
        fits = b.value("arith.andi", (b.compare("slt", least, size), _fits(rows, shifted, held)), b.i1)
        unroll = -(-held // shifted.width)
        return b.branch(fits, [], lambda: rows.write(shifted, unroll), lambda: rows.write(given, 0))


def _is_held(plan: RowPlan) -> bool:
    """True if rows are read more than once."""
    return bool(plan.full) or len(plan.passes) > 1


def _is_short(length: Dim, width: int) -> Dim:
    """1 where `0 < length <= SHORT` and `length` is a multiple of `width`, else 0."""
    some = dims.dim_min(1, length)
    few = dims.dim_min(1, dims.floordiv(SHORT, dims.dim_max(1, length)))
    return some * few * (1 - dims.dim_min(1, dims.mod(length, width)))


def _in_vectors(form: RowForm, stored: Stored) -> RowForm | None:
    """The form in which rows whose length is a symbol `n` are whole vectors: `n` is `width` times another symbol."""
    name = str(form.plan.length)
    if name not in form.graph.symbols:
        return None
    width = MOST_LANES
    while width > 1:
        sizes = {name: width * dims.symbol(f"{name}_{width}")}
        wide = RowForm(form.plan.substitute(sizes), TensorGraph(form.graph.op, sizes), width)
        if row_width(wide.graph, stored, wide.plan) == width:
            return wide
        width //= 2
    return None


def _divide(rows: RowStage, given: RowForm, wide: RowForm) -> ir.Value:
    """Give the symbol of `wide`, how many vectors a row is, its value; true if they are all of it."""
    b = rows.stage.b
    size, width = b.dim(given.plan.length), b.constant(wide.width, b.index)
    vectors = dims.floordiv(wide.plan.length, wide.width)
    if wide is not given:
        b.bind(str(vectors), b.binary("arith.divui", size, width))
    rest = b.binary("arith.remui", size, width)
    return b.compare("eq", rest, 0)


def _write(rows: RowStage, form: RowForm, held: int, longer: bool) -> list[ir.Value]:
    """Write the results of rows of `form`; threads hold vectors that would be read again, where they can."""
    if form.width == 1 or not _is_held(form.plan):
        return rows.write(form, 0)
    unroll = -(-held // form.width)
    if not longer:
        return rows.write(form, unroll)
    fits = _fits(rows, form, held)
    return rows.stage.b.branch(fits, [], lambda: rows.write(form, unroll), lambda: rows.write(form, 0))


def _fits(rows: RowStage, form: RowForm, held: int) -> ir.Value:
    """True for rows of some elements, whose vectors the threads can hold."""
    b = rows.stage.b
    more, most = b.dim(form.plan.length - 1), b.constant(held * rows.threads + form.width - 1, b.index)
    return b.compare("ult", more, most)  # 0 < length <= most
