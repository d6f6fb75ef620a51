"""Register tiles by lanes: one group of elements of A times a group of each column, for instructions that add products along K.

    acc[c] += sum_i a[k + i] * b[k + i, c]        c < width; Arm's `bfdot`, `sdot` (`narrow`)

A comes in vectors along K, of which each step spreads one group. B is laid out in groups, or its rows are interleaved in
registers where it is packed by rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mlir import ir

from .code import Code, Index
from .micro import Panel, Rows, Tile
from .narrow import Grouped, Instruction, one_by_one, shuffle


def multiply_lanes(
    code: Code, tile: Tile, instruction: Instruction, rows: Rows, b: Grouped, low: Index, high: Index,
    acc: Sequence[ir.Value],
) -> list[ir.Value]:  # fmt: skip
    """`acc + A[rows, low:high] @ B[low:high, columns]`; A is narrow and has stride 1 along K."""
    columns = lambda k: b.columns(code, tile, instruction, k)
    return _multiply(code, tile, instruction, rows, b, low, high, acc, instruction.loaded, columns)


def multiply_pairs(
    code: Code, tile: Tile, instruction: Instruction, rows: Rows, panel: Panel, low: Index, high: Index,
    acc: Sequence[ir.Value],
) -> list[ir.Value]:  # fmt: skip
    """`multiply_lanes` for groups of two, with B by rows."""

    def columns(k: Index) -> list[ir.Value]:
        even, odd = (panel.raw(code, tile, code.add(k, o)) for o in (0, 1))
        mask = [i + o for i in range(tile.width) for o in (0, tile.width)]
        return [shuffle(code, x, y, mask) for x, y in zip(even, odd)]

    # from half a register and in bf16: LLVM makes the instruction's own lane operand of this form only
    return _multiply(code, tile, instruction, rows, panel, low, high, acc, tile.width, columns)


def _multiply(
    code: Code, tile: Tile, instruction: Instruction, rows: Rows, panel: Panel, low: Index, high: Index,
    acc: Sequence[ir.Value], step: int, columns: Callable[[Index], list[ir.Value]],
) -> list[ir.Value]:  # fmt: skip
    def several(k: Index, *now: ir.Value) -> list[ir.Value]:
        a = [code.vload(rows.buffer, code.add(s, k), step) for s in rows.starts]
        sums = list(now)
        for part in range(0, step, instruction.depth):
            b = columns(code.add(k, part))
            for r, x in enumerate(a):
                spread = shuffle(code, x, x, [part + i for i in range(instruction.depth)] * tile.width)
                for q, y in enumerate(b):
                    at = r * tile.vectors + q
                    sums[at] = instruction.call(code, sums[at], y, spread)
        return sums

    whole = code.add(low, code.mul(code.div(code.sub(high, low), step), step))
    return one_by_one(code, tile, rows, panel, whole, high, code.loop(low, whole, step, acc, several))
