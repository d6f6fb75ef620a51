"""A register tile as dot products along K: for few rows times a B whose unit stride is along K (an unpacked weight).

    for each vector of columns:  for each row:   acc[c] += a[k : k + width] * b[c, k : k + width]    c < width
                                                 the lanes of the `width` sums are added by a transpose

B is read once, in place; packing it would move it twice to use it a few times.
"""

from __future__ import annotations

from mlir import ir

from . import numeric
from .code import Code, Index
from .micro import Rows, Tile
from .pack import Matrix
from .transpose import transpose


def dot_tile(
    code: Code, tile: Tile, rows: Rows, b: Matrix, first: Index, k_size: Index, last: Index | None = None
) -> list[ir.Value]:
    """The sums of `rows` (k stride 1, in the tile's dtype) times columns `first ...` of `b` (k stride 1), row by row.

    Columns past `last`, where given, are not read: they give what column `last` gives.
    """
    by_column = []
    for q in range(tile.vectors):
        columns = [code.add(first, q * tile.width + c) for c in range(tile.width)]
        columns = columns if last is None else [code.min(c, last) for c in columns]
        starts = [b.at(code, 0, c) for c in columns]
        by_column.append([_dots(code, tile, rows.buffer, row, b, starts, k_size) for row in rows.starts])
    return [column[r] for r in range(len(rows.starts)) for column in by_column]


def _dots(
    code: Code, tile: Tile, a: ir.Value, row: Index, b: Matrix, starts: list[Index], k_size: Index
) -> ir.Value:  # fmt: skip
    """The dot products of one row with `width` columns, as a vector."""
    width = tile.width
    vector = ir.VectorType.get([width], numeric.element_type(tile.dtype))
    whole = code.mul(code.div(k_size, width), width)

    def step(k: Index, *acc: ir.Value) -> list[ir.Value]:
        x = code.vload(a, code.add(row, k), width)
        out = []
        for start, total in zip(starts, acc):
            y = numeric.convert(code, code.vload(b.buffer, code.add(start, k), width), b.dtype, tile.dtype)
            out.append(numeric.multiply_add(code, x, y, total))
        return out

    parts = code.loop(0, whole, width, [code.constant(0, vector)] * width, step)
    lanes = transpose(code, parts, 64 if tile.dtype in ("f64", "i64") else 32)
    while len(lanes) > 1:  # a balanced tree keeps the error of the sum small
        lanes = [numeric.add(code, x, y) for x, y in zip(lanes[::2], lanes[1::2])]

    def rest(k: Index, total: ir.Value) -> list[ir.Value]:
        x = numeric.broadcast(code, code.load(a, code.add(row, k)), width)
        loaded = [numeric.convert(code, code.load(b.buffer, code.add(s, k)), b.dtype, tile.dtype) for s in starts]
        return [numeric.multiply_add(code, x, code.op("vector.from_elements", [vector], loaded), total)]

    return code.loop(whole, k_size, 1, lanes, rest)[0]
