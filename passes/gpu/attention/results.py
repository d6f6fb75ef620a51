"""What a consumer of an attention writes: outputs by the epilogue and log-sum-exps, or one part of the keys."""

from __future__ import annotations

from mlir import ir

from ....dialects import dims
from ....dialects.dims import Dim
from ..gpu_kernel import GpuStage
from ..hopper.ptx import Ptx
from ..lane_places import divisible
from ..matmul.epilogue import Epilogue, Limits
from .problem import Attention
from .softmax import RowState, Softmax
from .tiles import AttentionTiles
from .warp_tiles import WarpTiles


class Results:
    """Writes 64 query rows of a warpgroup; `parts` are scratch buffers (O, maxima, totals) if keys are split."""

    def __init__(
        self, stage: GpuStage, attention: Attention, softmax: Softmax, tiles: AttentionTiles | WarpTiles,
        parts: tuple[int, int, int] | None,
    ):  # fmt: skip
        self.stage, self.b, self.ptx = stage, stage.b, Ptx(stage)
        self.attention, self.softmax, self.tiles, self.parts = attention, softmax, tiles, parts

    def write(self, head: Dim, lane_row: Dim, part: Dim, rows: RowState, sums: list[ir.Value]) -> None:
        """Write 64 query rows of a consumer: outputs, or one part's sums, maxima and totals."""
        p, softmax = self.attention.product, self.softmax
        totals = softmax.finished(rows)
        end = None if divisible(p.m, self.tiles.rows) else p.m
        if self.parts is not None:
            self._keep(head, lane_row, part, rows, totals, sums)
            return
        lse = self.attention.root.results[1]
        for value, buffer in zip(self.stage.kernel.graph.results, self.stage.outputs):
            if value == lse:
                for h in range(2):
                    self._one_lane(buffer, head * p.m, lane_row + 8 * h, softmax.lse(rows.top[h], totals[h]))
        inverse = [softmax.inverse(x) for x in totals]
        values = [softmax.binary("mulf", x, inverse[i // 2 % 2]) for i, x in enumerate(sums)]
        columns = Limits(end=None if p.n == self.tiles.depth else p.n)
        Epilogue(self.stage, p, apart=lse).fragment(head, lane_row, 0, values, Limits(end=end), columns)

    def _one_lane(self, buffer: ir.Value, start: Dim, row: Dim, value: ir.Value) -> None:
        """Store what four lanes know of a row, once."""
        b = self.b
        conditions = [self.b.compare("eq", dims.symbol("quad"), 0)]
        conditions += self.ptx.within(row, None, self.attention.product.m)

        def store() -> list[ir.Value]:
            b.op("memref.store", (value, buffer, b.dim(start + row)))
            return []

        b.branch(self.b.all_of(conditions), [], store)

    def _keep(
        self, head: Dim, lane_row: Dim, part: Dim, rows: RowState, totals: list[ir.Value], sums: list[ir.Value]
    ) -> None:
        """Write a part to scratch memory: O in rows of `depth` elements."""
        b, p = self.b, self.attention.product
        assert self.parts is not None
        o, top, total = (self.stage.scratch[x] for x in self.parts)
        first = (part * p.batches + head) * p.m
        for h in range(2):
            self._one_lane(top, first, lane_row + 8 * h, rows.top[h])
            self._one_lane(total, first, lane_row + 8 * h, totals[h])
            row = lane_row + 8 * h

            def write(h: int = h, row: Dim = row) -> list[ir.Value]:
                own = self.softmax.of_row(sums, h)
                for j in range(len(own) // 2):
                    offset = (first + row) * self.tiles.depth + 8 * j + 2 * dims.symbol("quad")
                    pair = b.value("vector.from_elements", own[2 * j : 2 * j + 2], ir.VectorType.get([2], b.f32))
                    alignment = ir.IntegerAttr.get(b.i64, 8)
                    b.op("vector.store", (pair, o, b.dim(offset)), attributes={"alignment": alignment})
                return []

            b.branch(self.b.all_of(self.ptx.within(row, None, p.m)), [], write)
