"""Pack A for the register tile, where its unit stride is along rows: the first operand is a transpose, as in a weight's gradient.

    packed[t][k][r] = A[first + t * MR + r, low + k]        MR rows a tile, in the compute dtype

In place, each step along K would touch another page of memory. A whole vector is copied for the MR rows of each (t, k);
the lanes beyond are overwritten by the next k, or lie in the gap behind each tile.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlir import ir

from . import numeric
from .code import Code, Index
from .micro import Rows, Tile
from .pack import ROWS, Matrix


def packed_rows_size(code: Code, tile: Tile, depth: Index, rows: int) -> Index:
    """Elements of the buffer for `rows` rows and `depth` elements of K."""
    return code.mul(-(-rows // tile.rows), _tile_size(code, tile, depth))


@dataclass(frozen=True)
class PackedRows:
    """Rows of A from `first` on, `low .. high` of K, in `buffer`."""

    code: Code
    tile: Tile
    buffer: ir.Value
    first: Index
    low: Index
    high: Index

    def rows(self, m: Index) -> Rows:
        """Where the tile finds rows `m ...`."""
        code, rows = self.code, self.tile.rows
        number = code.div(code.sub(m, self.first), rows)
        # the loops over k run from `low`; a packed tile starts at 0
        start = code.sub(code.mul(number, self._step()), code.mul(self.low, rows))
        return Rows(self.buffer, [code.add(start, r) for r in range(rows)], rows)

    def fill(self, a: Matrix, end: Index, size: Index) -> None:
        """Pack rows `first .. end` of `a`, which has `size` rows in all, along its second index."""
        code, tile = self.code, self.tile
        tiles = code.ceildiv(code.sub(end, self.first), tile.rows)

        def block(low: Index, high: Index) -> None:
            def one(t: Index) -> None:
                m = code.add(self.first, code.mul(t, tile.rows))
                at = code.mul(t, self._step())
                code.branch(
                    code.compare("le", code.add(m, _reach(tile)), size),
                    lambda: self._copy(a, m, low, high, at, _reach(tile), tile.width),
                    lambda: self._copy(a, m, low, high, at, code.min(tile.rows, code.sub(size, m)), 1),
                )

            code.loop(0, tiles, 1, [], one)

        whole = code.add(self.low, code.mul(code.div(code.sub(self.high, self.low), ROWS), ROWS))
        code.loop(self.low, whole, ROWS, [], lambda k: block(k, code.add(k, ROWS)))
        if not (isinstance(self.high, int) and self.high == whole):
            block(whole, self.high)

    def _copy(self, a: Matrix, m: Index, low: Index, high: Index, at: Index, count: Index, lanes: int) -> None:
        """Copy `count` rows from `m` on to the tile at `at`, `lanes` at a time."""
        code, tile = self.code, self.tile

        def line(k: Index) -> None:
            to = code.add(at, code.mul(code.sub(k, self.low), tile.rows))

            def put(r: Index) -> None:
                source = a.at(code, k, code.add(m, r))
                x = code.load(a.buffer, source) if lanes == 1 else code.vload(a.buffer, source, lanes)
                x = numeric.convert(code, x, a.dtype, tile.dtype)
                (code.store if lanes == 1 else code.vstore)(x, self.buffer, code.add(to, r))

            code.loop(0, count, lanes, [], put)

        code.loop(low, high, 1, [], line)

    def _step(self) -> Index:
        return _tile_size(self.code, self.tile, self.code.sub(self.high, self.low))


def _reach(tile: Tile) -> int:
    """The rows of a tile in whole vectors."""
    return -(-tile.rows // tile.width) * tile.width


def _tile_size(code: Code, tile: Tile, depth: Index) -> Index:
    return code.add(code.mul(depth, tile.rows), _reach(tile) - tile.rows)
