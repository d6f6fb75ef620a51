"""Products of bf16 in squares, by an instruction that multiplies two 2 x 4 matrices of bf16 and adds in f32 (Arm's `bfmmla`).

    acc[i, j] += sum_k a[i, k] * b[k, j]        i, j < 2; k < 4, one instruction: twice the work of `bfdot`

The sums of a tile are squares while K is walked: two rows times two columns in a register. Four elements of K of two
rows of A come together in registers. B must have its columns by fours along K, which takes as many shuffles as there are
products in half a tile; so a panel is laid out anew in scratch, once for all tiles of the rows of an item:

    quads[k / 4][c][k % 4] = b[k, c]

Rounding is that of `pairs`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mlir import ir

from .code import Code, Index
from .micro import Panel, Rows, Tile
from .pairs import call, one_by_one

QUAD = 4  # elements of K of an instruction
DEPTH = 2 * QUAD  # of a step: a register of each row of A


@dataclass(frozen=True)
class Quads(Panel):
    """A panel that is also laid out in `quads`, from line `origin` on; lines are taken from there in multiples of `DEPTH`."""

    quads: ir.Value | None = None
    origin: Index = 0


def lay_out(code: Code, tile: Tile, panel: Panel, low: Index, high: Index, quads: ir.Value) -> Quads:
    """Lay out lines `low .. high` of a panel of bf16 in `quads`; the last lines that make no quad stay in the panel."""

    def four(k: ir.Value) -> None:
        lines = [panel.raw(code, tile, code.add(k, o)) for o in range(QUAD)]
        at = code.mul(code.sub(k, low), tile.columns)
        for q in range(tile.vectors):
            early, late = (_shuffle(code, lines[o][q], lines[o + 1][q], [0, 4, 1, 5, 2, 6, 3, 7]) for o in (0, 2))
            for i, mask in enumerate(([0, 1, 8, 9, 2, 3, 10, 11], [4, 5, 12, 13, 6, 7, 14, 15])):
                both = _shuffle(code, early, late, mask)
                code.vstore(both, quads, code.add(at, (q * tile.width + 2 * i) * QUAD))

    whole = code.add(low, code.mul(code.div(code.sub(high, low), QUAD), QUAD))
    code.loop(low, whole, QUAD, [], four)
    return Quads(panel.buffer, panel.start, panel.stride, panel.dtype, panel.vectors, panel.next, quads, low)


def multiply_quads(
    code: Code, tile: Tile, intrinsic: str, rows: Rows, b: Quads, low: Index, high: Index, acc: Sequence[ir.Value]
) -> list[ir.Value]:
    """`acc + A[rows, low:high] @ B[low:high, columns]`; A is bf16 and has stride 1 along K."""
    height, squares = len(rows.starts), tile.columns // 2
    pairs = [(r, min(r + 1, height - 1)) for r in range(0, height, 2)]  # a last row without another is its own

    def several(k: Index, *now: ir.Value) -> list[ir.Value]:
        a = [code.vload(rows.buffer, code.add(s, k), DEPTH) for s in rows.starts]
        sums = list(now)
        for half in range(2):
            at = code.mul(code.add(code.sub(k, b.origin), half * QUAD), tile.columns)
            columns = [code.vload(b.quads, code.add(at, c * DEPTH), DEPTH) for c in range(squares)]  # type: ignore[arg-type]
            mask = [half * QUAD + i + o for o in (0, DEPTH) for i in range(QUAD)]
            for p, (r, s) in enumerate(pairs):
                x = _shuffle(code, a[r], a[s], mask)
                for c, y in enumerate(columns):
                    sums[p * squares + c] = call(code, intrinsic, sums[p * squares + c], x, y)
        return sums

    whole = code.add(low, code.mul(code.div(code.sub(high, low), DEPTH), DEPTH))
    sums = code.loop(low, whole, DEPTH, _to_squares(code, tile, pairs, acc), several)
    return one_by_one(code, tile, rows, b, whole, high, _to_rows(code, tile, pairs, sums))


def _to_squares(code: Code, tile: Tile, pairs: Sequence[tuple[int, int]], acc: Sequence[ir.Value]) -> list[ir.Value]:
    """`[r][q]`, vectors of a row each → `[pair][two columns]`."""
    return [
        _shuffle(code, acc[r * tile.vectors + q], acc[s * tile.vectors + q], [c, c + 1, c + 4, c + 5])
        for r, s in pairs
        for q in range(tile.vectors)
        for c in (0, 2)
    ]


def _to_rows(code: Code, tile: Tile, pairs: Sequence[tuple[int, int]], sums: Sequence[ir.Value]) -> list[ir.Value]:
    """The inverse of `_to_squares`."""
    squares = tile.columns // 2
    return [
        _shuffle(code, sums[p * squares + 2 * q], sums[p * squares + 2 * q + 1], [o, o + 1, o + 4, o + 5])
        for p, (r, s) in enumerate(pairs)
        for o in ((0, 2) if r != s else (0,))
        for q in range(tile.vectors)
    ]


def _shuffle(code: Code, x: ir.Value, y: ir.Value, mask: Sequence[int]) -> ir.Value:
    made = ir.VectorType.get([len(mask)], ir.VectorType(x.type).element_type)
    return code.op("vector.shuffle", [made], [x, y], mask=ir.DenseI64ArrayAttr.get(list(mask)))
