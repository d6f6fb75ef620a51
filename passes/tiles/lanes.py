"""Register tiles by lanes: one group of elements of A times a group of each column, for instructions that add products along K.

    acc[c] += sum_i a[k + i] * b[k + i, c]        c < width; `bfdot`, `sdot`, `udot`, `vpmaddwd`, `vpdpbusd` (`narrow`)

A comes in vectors along K, of which each step spreads one group. B is laid out in groups, or its rows are interleaved in
registers where it is packed by rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mlir import ir

from . import numeric
from .code import Code, Index
from .groups import Grouped, padded
from .micro import Panel, Rows, Tile, step
from .narrow import Instruction, shuffle


def multiply_lanes(
    code: Code, tile: Tile, instruction: Instruction, rows: Rows, b: Grouped, low: Index, high: Index,
    acc: Sequence[ir.Value],
) -> list[ir.Value]:  # fmt: skip
    """`acc + A[rows, low:high] @ B[low:high, columns]`; A has stride 1 along K and is padded as B is."""
    columns = lambda k: b.columns(code, tile, instruction, k)
    end = code.add(low, padded(code, code.sub(high, low), instruction.unit))
    sums = _multiply(code, tile, instruction, rows, low, end, acc, instruction.loaded, columns)
    if not instruction.shifted:
        return sums
    more = _excess(code, tile, instruction, b, low, end)
    return [code.op("arith.subi", [s.type], [s, more[i % tile.vectors]]) for i, s in enumerate(sums)]


def _excess(code: Code, tile: Tile, instruction: Instruction, b: Grouped, low: Index, high: Index) -> list[ir.Value]:
    """128 times the sum of each column, as vectors: what `(a + 128) b` is more than `a b`."""
    vector = ir.VectorType.get([instruction.elements], numeric.element_type(instruction.b))
    factor = code.constant(-128, vector)  # 128 in u8
    parts = range(0, instruction.unit, instruction.depth)
    zero = code.constant(0, ir.VectorType.get([tile.width], numeric.element_type(tile.dtype)))

    def several(k: Index, *now: ir.Value) -> list[ir.Value]:
        columns = [y for part in parts for y in b.columns(code, tile, instruction, code.add(k, part))]
        return [instruction.call(code, acc, factor, y) for acc, y in zip(now, columns)]

    # sums of their own for each part of a step hide the instruction's latency
    sums = code.loop(low, high, instruction.unit, [zero] * (len(parts) * tile.vectors), several)
    total = sums[: tile.vectors]
    for i in range(tile.vectors, len(sums), tile.vectors):
        total = [numeric.add(code, x, y) for x, y in zip(total, sums[i : i + tile.vectors])]
    return total


def multiply_pairs(
    code: Code, tile: Tile, instruction: Instruction, rows: Rows, panel: Panel, low: Index, high: Index,
    acc: Sequence[ir.Value],
) -> list[ir.Value]:  # fmt: skip
    """`multiply_lanes` for groups of two, with B by rows; what K leaves over is multiplied in the tile's type."""

    def columns(k: Index) -> list[ir.Value]:
        even, odd = (panel.raw(code, tile, code.add(k, o)) for o in (0, 1))
        mask = [i + o for i in range(tile.width) for o in (0, tile.width)]
        return [shuffle(code, x, y, mask) for x, y in zip(even, odd)]

    def one(k: Index, *now: ir.Value) -> list[ir.Value]:
        scalars = [lambda x=x: numeric.convert(code, x(), panel.dtype, tile.dtype) for x in rows.loads(code, k)]
        return step(code, tile, scalars, panel.loads(code, tile, k), now)

    # from half a register and in bf16: LLVM makes the instruction's own lane operand of this form only
    whole = code.add(low, code.mul(code.div(code.sub(high, low), tile.width), tile.width))
    acc = _multiply(code, tile, instruction, rows, low, whole, acc, tile.width, columns)
    return list(acc) if isinstance(high, int) and high == whole else code.loop(whole, high, 1, acc, one)


def _multiply(
    code: Code, tile: Tile, instruction: Instruction, rows: Rows, low: Index, high: Index, acc: Sequence[ir.Value],
    step: int, columns: Callable[[Index], list[ir.Value]],
) -> list[ir.Value]:  # fmt: skip
    """The sums over whole steps of K."""

    def several(k: Index, *now: ir.Value) -> list[ir.Value]:
        a = [code.vload(rows.buffer, code.add(s, k), step) for s in rows.starts]
        sums = list(now)
        for part in range(0, step, instruction.depth):
            b = columns(code.add(k, part))
            for r, x in enumerate(a):
                spread = shuffle(code, x, x, [part + i for i in range(instruction.depth)] * tile.width)
                for q, y in enumerate(b):
                    at = r * tile.vectors + q
                    # LLVM takes a lane from Arm's second factor; where the factors differ in sign, A is the first
                    factors = (spread, y) if instruction.a != instruction.b else (y, spread)
                    sums[at] = instruction.call(code, sums[at], *factors)
        return sums

    return code.loop(low, high, step, acc, several)
