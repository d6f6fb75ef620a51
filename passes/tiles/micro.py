"""The register tile: `rows x (vectors * width)` sums held in registers while walking K.

    for k:  b[q] = vector q of B at k;   for r:  a = broadcast A[r, k];   acc[r][q] += a * b[q]

A is read element by element through any row addresses, so it needs no packing when it is in the compute dtype; B gives
whole vectors, from packed panels or straight from rows. Where an instruction multiplies by one lane of a register
(`by_lane`: AArch64), A comes in vectors along k too, a quarter of the loads. On AVX2 a 6 x 16 tile of f32 takes 12 of 16 registers, on
AVX-512 8 x 32 takes 16 of 32 (measured best there: taller tiles gain nothing).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from mlir import ir

from . import numeric
from .code import Code, Index

LATENCY = 4  # cycles of a multiply-add, on x86-64 cores since Zen and Skylake
WORTH_IT = 0.95  # of the usual height's time; tall tiles read B less often


@dataclass(frozen=True)
class Tile:
    """A register tile: `rows` by `vectors` vectors of `width` lanes of `dtype` (a compute dtype)."""

    rows: int
    vectors: int
    width: int
    dtype: str
    by_lane: bool = False  # multiply by lanes of vectors of A rather than by scalars from memory

    @property
    def columns(self) -> int:
        return self.vectors * self.width


def choose_tile(dtype: str, vector_bits: int, registers: int, by_lane: bool = False) -> Tile:
    """The tile for a compute dtype: two vectors wide, and as many rows as registers carry well."""
    width = vector_bits // (64 if dtype in ("f64", "i64") else 32)
    return Tile(6 if registers < 32 else 8, 2, width, dtype, by_lane and width > 1)


def fitted(tile: Tile, rows: int) -> Tile:
    """`tile` with the height that cuts so many rows best: 8 rows are two tiles of 4 rather than of 6 and 2.

    A step along K takes a cycle a row (two multiply-adds of vectors), but as long as a multiply-add at least, plus a bit
    to load B. Arm's cores, which multiply by lanes, start twice as many and need all rows that there are.
    """
    if rows <= tile.rows or tile.by_lane:
        return tile

    def time(height: int) -> float:
        return sum(max(min(height, rows - first), LATENCY) + 0.3 for first in range(0, rows, height))

    best = min(range(tile.rows, LATENCY - 1, -1), key=time)
    return replace(tile, rows=best) if time(best) < WORTH_IT * time(tile.rows) else tile


def zeros(code: Code, tile: Tile, rows: int) -> list[ir.Value]:
    """The accumulators of `rows` rows, all zero."""
    vector = ir.VectorType.get([tile.width], numeric.element_type(tile.dtype))
    return [code.constant(0, vector)] * (rows * tile.vectors)


def step(
    code: Code, tile: Tile, a: Sequence[Callable[[], ir.Value]], b: Sequence[ir.Value], acc: Sequence[ir.Value]
) -> list[ir.Value]:
    """One k: `acc[r][q] + a[r] * b[q]`; `a[r]()` loads the scalar, just before its use."""
    out = []
    for r, scalar in enumerate(a):
        spread = numeric.broadcast(code, scalar(), tile.width)
        for q in range(tile.vectors):
            out.append(numeric.multiply_add(code, spread, b[q], acc[r * tile.vectors + q]))
    return out


@dataclass(frozen=True)
class Rows:
    """Where the tile finds A: row `r` at k is element `starts[r] + k * stride` of `buffer`."""

    buffer: ir.Value
    starts: Sequence[Index]
    stride: Index = 1

    def top(self, rows: int) -> Rows:
        """The first `rows` rows."""
        return Rows(self.buffer, self.starts[:rows], self.stride)

    def loads(self, code: Code, k: Index) -> list[Callable[[], ir.Value]]:
        """For each row, the function that emits the load of its element at `k`."""
        offset = code.mul(k, self.stride)
        return [lambda s=s: code.load(self.buffer, code.add(s, offset)) for s in self.starts]


@dataclass(frozen=True)
class Panel:
    """Where the tile finds B: vector `q` at k starts at element `start + k * stride + q * width` of `buffer`.

    A tile may span several packed panels of `vectors` vectors each, `next` elements apart. `dtype` is that of the buffer.
    With each k, element `ahead + k * pace` is fetched (`fetch`).
    """

    buffer: ir.Value
    start: Index
    stride: Index
    dtype: str = ""
    vectors: int = 0
    next: Index = 0
    ahead: Index | None = None
    pace: int = 0

    def loads(self, code: Code, tile: Tile, k: Index) -> list[ir.Value]:
        """The vectors of B at `k`, in the tile's dtype."""
        if self.ahead is not None:
            code.prefetch(self.buffer, code.add(self.ahead, code.mul(k, self.pace)))
        return [numeric.convert(code, x, self.dtype or tile.dtype, tile.dtype) for x in self.raw(code, tile, k)]

    def raw(self, code: Code, tile: Tile, k: Index) -> list[ir.Value]:
        """The vectors of B at `k`, as they are stored."""
        at = code.add(self.start, code.mul(k, self.stride))
        loaded = []
        for q in range(tile.vectors):
            panel, place = divmod(q, self.vectors) if self.vectors else (0, q)
            start = code.add(at, code.mul(panel, self.next), place * tile.width)
            loaded.append(code.vload(self.buffer, start, tile.width))
        return loaded


def multiply(
    code: Code, tile: Tile, rows: Rows, panel: Panel, low: Index, high: Index, acc: Sequence[ir.Value]
) -> list[ir.Value]:
    """`acc + A[rows, low:high] @ B[low:high, columns]`."""

    def one(k: Index, *now: ir.Value) -> list[ir.Value]:
        return step(code, tile, rows.loads(code, k), panel.loads(code, tile, k), now)

    if not tile.by_lane or not (isinstance(rows.stride, int) and rows.stride == 1):
        return code.loop(low, high, 1, acc, one)

    def several(k: Index, *now: ir.Value) -> list[ir.Value]:
        a = [code.vload(rows.buffer, code.add(s, k), tile.width) for s in rows.starts]
        for lane in range(tile.width):
            scalars = [lambda x=x, at=lane: _lane(code, x, at) for x in a]
            now = tuple(step(code, tile, scalars, panel.loads(code, tile, code.add(k, lane)), now))
        return list(now)

    whole = code.add(low, code.mul(code.div(code.sub(high, low), tile.width), tile.width))
    acc = code.loop(low, whole, tile.width, acc, several)
    return acc if isinstance(high, int) and high == whole else code.loop(whole, high, 1, acc, one)


def multiply_by_table(
    code: Code, tile: Tile, rows: Rows, table: ir.Value, panel: Panel, low: Index, high: Index, acc: Sequence[ir.Value],
    line: Sequence[Index] = (0,),
) -> list[ir.Value]:  # fmt: skip
    """The same where `table[k]`, of i32, says how far behind the row's start its element at k lies: one load, no sums of terms.

    Elements `k, k + 1, ...` of K, for k a multiple of so many, lie `line` behind the first of them: they are unrolled.
    """

    def one(k: Index, *now: ir.Value) -> list[ir.Value]:
        at, sums = code.op("arith.index_cast", [code.index], [code.load(table, k)]), list(now)
        for i, place in enumerate(line):
            a = [lambda s=code.add(s, at, place): code.load(rows.buffer, s) for s in rows.starts]
            sums = step(code, tile, a, panel.loads(code, tile, code.add(k, i)), sums)
        return sums

    return code.loop(low, high, len(line), acc, one)


def _lane(code: Code, vector: ir.Value, lane: int) -> ir.Value:
    element = ir.VectorType(vector.type).element_type
    return code.op("vector.extract", [element], [vector], static_position=ir.DenseI64ArrayAttr.get([lane]))


def load_tile(code: Code, tile: Tile, buffer: ir.Value, start: Index, stride: Index, rows: int) -> list[ir.Value]:
    """Accumulators from a scratch buffer whose rows are `stride` apart."""
    return [
        code.vload(buffer, code.add(start, code.mul(stride, r), q * tile.width), tile.width)
        for r in range(rows)
        for q in range(tile.vectors)
    ]


def store_tile(code: Code, tile: Tile, acc: Sequence[ir.Value], buffer: ir.Value, start: Index, stride: Index) -> None:
    """Write accumulators to a scratch buffer whose rows are `stride` apart."""
    for i, value in enumerate(acc):
        r, q = divmod(i, tile.vectors)
        code.vstore(value, buffer, code.add(start, code.mul(stride, r), q * tile.width))
