"""Attention in f32 where no matrix instruction takes it: `waves` by multiply-adds, on any GPU with waves of 32.

A lane has one row in each 16 and, of a tile, half of the columns, eight by eight (`MultiplyAdd`). Each product is a loop along
its K, four at a time; for the second one weights go through shared memory, behind the barrier that V waits for anyway:

    S = 0;  for k in depth by 4:   read Q[row, k ..], K[its columns, k ..];      S += Q K
    O = ..; for k in keys by 4:    read P[row, k ..], V[k .., its columns];      O += P V
"""

from __future__ import annotations

from collections.abc import Sequence

from mlir import ir

from ....dialects import dims
from ....dialects.dims import Dim
from ..matmul.matrix_units import SIDE
from ..matmul.tile_operands import CHUNK
from .waves import WaveAttention

TOGETHER = 2  # times 16 columns of V that a lane reads at once: registers for more are needed elsewhere


class SimtAttention(WaveAttention):
    """One attention as a stage of `kernel`."""

    def _scores(self, queries: list[list[ir.Value]] | None) -> list[ir.Value]:
        b, unit, tiles = self.b, self.unit, self.tiles
        zero = b.constant(0.0, ir.VectorType.get([unit.results], b.f32))
        groups = range(0, tiles.keys, SIDE)

        def step(k: Dim, sums: list[ir.Value]) -> list[ir.Value]:
            at = b.dim(k * unit.step)
            own = [self._query(f, at) for f in range(tiles.fragments)]
            keys = [self._operand(self.k, self.k_start, b.constant(first, b.index), at, (0, 1)) for first in groups]
            pairs = [(q, other) for q in own for other in keys]
            return [unit.multiply(b, d, q, other) for d, (q, other) in zip(sums, pairs)]

        start = [zero] * (tiles.fragments * len(groups))
        sums = b.loop_carried("k", 0, tiles.depth // unit.step, start, step, kept=True)
        return [b.extract(x, i) for x in sums for i in range(unit.results)]

    def _weights(self, weights: Sequence[ir.Value]) -> list[list[ir.Value]]:
        """Weights to shared memory, as rows of keys."""
        b, size = self.b, CHUNK // self.tiles.bytes
        type, alignment = ir.VectorType.get([size], b.f32), ir.IntegerAttr.get(b.i64, CHUNK)
        layout, key = self.softmax.layout, self.own * dims.floordiv(dims.symbol("in_wave"), SIDE)
        for i in range(0, len(weights), size):
            row = layout.rows[layout.row(i)]
            made = b.value("vector.from_elements", weights[i : i + size], type)
            at = b.dim(self._weight_row(row) + key + layout.column(i))
            b.op("vector.store", (made, self.room, at), attributes={"alignment": alignment})
        return []

    def _weight_row(self, row: int) -> Dim:
        """Where the weights of this lane's row begin, `row` below its first."""
        pitch = self.tiles.keys + CHUNK // self.tiles.bytes
        return self.p_start + (self.part_row + dims.mod(dims.symbol("in_wave"), SIDE) + row) * pitch

    def _products(self, sums: Sequence[ir.Value], weights: list[list[ir.Value]]) -> list[ir.Value]:
        b, unit, tiles = self.b, self.unit, self.tiles
        columns = range(0, tiles.depth, SIDE)
        type, alignment = ir.VectorType.get([unit.step], b.f32), ir.IntegerAttr.get(b.i64, CHUNK)

        def step(k: Dim, sums: list[ir.Value]) -> list[ir.Value]:
            at, own = b.dim(k * unit.step), []
            for f in range(tiles.fragments):
                place = b.dim(self._weight_row(SIDE * f) + k * unit.step)
                own.append(b.value("vector.load", (self.room, place), type, alignment=alignment))
            made = list(sums)
            for n, j in enumerate(columns):
                values = self._operand(self.v, self.v_start, b.constant(j, b.index), at, (0, 1))
                for f, p in enumerate(own):
                    i = f * len(columns) + n
                    made[i] = unit.multiply(b, made[i], p, values)
                if n % TOGETHER == TOGETHER - 1:
                    self.unit.keep_order(self.b)
            return made

        steps = tiles.keys // unit.step
        return b.loop_carried("k", 0, steps, list(sums), step, kept=True)
