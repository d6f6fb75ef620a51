"""Register tiles of squares: two rows times two columns in a register, for instructions that multiply small matrices.

    acc[i, j] += sum_k a[i, k] * b[k, j]        i, j < 2; Arm's `bfmmla`, `smmla`, `usmmla`, `ummla` (`narrow`)

One instruction is twice the work of a dot product by lanes. The sums of a tile are squares while K is walked; the elements
of K of two rows of A come together in registers.
"""

from __future__ import annotations

from collections.abc import Sequence

from mlir import ir

from .code import Code, Index
from .groups import Grouped, padded
from .micro import Rows, Tile
from .narrow import Instruction, shuffle


def multiply_squares(
    code: Code, tile: Tile, instruction: Instruction, rows: Rows, b: Grouped, low: Index, high: Index,
    acc: Sequence[ir.Value],
) -> list[ir.Value]:  # fmt: skip
    """`acc + A[rows, low:high] @ B[low:high, columns]`; A has stride 1 along K and is padded as B is."""
    height, squares, step = len(rows.starts), tile.columns // 2, instruction.loaded
    pairs = [(r, min(r + 1, height - 1)) for r in range(0, height, 2)]  # a last row without another is its own

    def several(k: Index, *now: ir.Value) -> list[ir.Value]:
        a = [code.vload(rows.buffer, code.add(s, k), step) for s in rows.starts]
        sums = list(now)
        for part in range(0, step, instruction.depth):
            columns = b.columns(code, tile, instruction, code.add(k, part))
            mask = [o + part + i for o in (0, step) for i in range(instruction.depth)]
            for p, (r, s) in enumerate(pairs):
                x = shuffle(code, a[r], a[s], mask)
                for c, y in enumerate(columns):
                    sums[p * squares + c] = instruction.call(code, sums[p * squares + c], x, y)
        return sums

    end = code.add(low, padded(code, code.sub(high, low), instruction.unit))
    return _to_rows(code, tile, pairs, code.loop(low, end, step, _to_squares(code, tile, pairs, acc), several))


def _to_squares(code: Code, tile: Tile, pairs: Sequence[tuple[int, int]], acc: Sequence[ir.Value]) -> list[ir.Value]:
    """`[r][q]`, vectors of a row each → `[pair][two columns]`."""
    return [
        shuffle(code, acc[r * tile.vectors + q], acc[s * tile.vectors + q], [c, c + 1, c + 4, c + 5])
        for r, s in pairs
        for q in range(tile.vectors)
        for c in (0, 2)
    ]


def _to_rows(code: Code, tile: Tile, pairs: Sequence[tuple[int, int]], sums: Sequence[ir.Value]) -> list[ir.Value]:
    """The inverse of `_to_squares`."""
    squares = tile.columns // 2
    return [
        shuffle(code, sums[p * squares + 2 * q], sums[p * squares + 2 * q + 1], [o, o + 1, o + 4, o + 5])
        for p, (r, s) in enumerate(pairs)
        for o in ((0, 2) if r != s else (0,))
        for q in range(tile.vectors)
    ]
