"""Attention by the matrix instructions of waves (`matmul/matrix_units`): a wave has some query rows, a block their keys.

    Q -> shared memory -> registers; K of tile 0 -> shared memory
    for each tile of keys, those on the diagonal or at the end apart, since only these are masked:
        load V of the tile                          in flight during the first product
        S = Q K;  softmax of S in registers
        store V;  load K of the next tile;  barrier
        O = correction O + P V
        store K;  barrier
    O / total -> epilogue

A lane has scores of one query row in each 16. The keys of a step are at places of X (`Unit.column`) such that a lane's
scores, rounded, are what the instructions take from it in the second product: P stays in registers. V goes to shared
memory with keys innermost.
"""

from __future__ import annotations

from collections.abc import Sequence

from mlir import ir

from ....dialects import dims
from ....dialects.dims import Dim
from ..gpu_kernel import GpuKernel
from ..matmul.matrix_units import SIDE, Unit
from ..matmul.problem import Product, Side
from ..matmul.tile_operands import TileOperand, tile_size
from ..matmul.wave_results import WaveResults
from .edges import Edges
from .layout import AMD, Layout
from .problem import Attention
from .softmax import RowState, Softmax, row_state
from .tiles import query_tile
from .wave_tiles import WaveTiles


class WaveAttention:
    """One attention as a stage of `kernel`."""

    def __init__(self, kernel: GpuKernel, attention: Attention, unit: Unit, tiles: WaveTiles):
        self.kernel, self.attention, self.unit, self.tiles = kernel, attention, unit, tiles
        p = attention.product
        self.row_tiles = dims.ceildiv(p.m, tiles.rows)
        self.stage = kernel.stage(kernel.wave * tiles.waves, (self.row_tiles, 1, p.batches))
        self.b = self.stage.b
        self.groups = kernel.wave // SIDE  # lanes that share a row
        self.own = SIDE // self.groups * unit.parts  # neighbouring keys of a step in a lane
        exact = attention.mask is not None or attention.scale <= 0
        self.softmax = Softmax(self.b, attention.scale, self._layout(), exact=exact)

    def _layout(self) -> Layout:
        """Scores of a lane: by 16 rows, then by steps of keys, then its own of the step."""
        each, own, step = self.tiles.keys // self.groups, self.own, self.unit.step
        return Layout(
            rows=tuple(SIDE * f for f in range(self.tiles.fragments)),
            distances=tuple(d for d in (16, 32) if d < self.kernel.wave),
            row=lambda i: i // each,
            column=lambda i: i % each // own * step + i % own,
            functions=AMD,
        )

    def emit(self) -> None:
        """Write the stage."""
        b, stage, tiles, p = self.b, self.stage, self.tiles, self.attention.product
        b.bind("batch", stage.block("z"))
        b.bind("tile", stage.block())
        b.bind("thread", stage.thread())
        lane = b.bind("in_wave", b.dim(dims.mod(dims.symbol("thread"), self.kernel.wave)))
        self.lane = b.dim(lane)
        causal = self.attention.causal
        self.block_row = b.bind(
            "block_row", b.dim(tiles.rows * query_tile(dims.symbol("tile"), self.row_tiles, causal, 1))
        )
        self.part_row = SIDE * tiles.fragments * dims.floordiv(dims.symbol("thread"), self.kernel.wave)
        self.lane_row = b.bind("lane_row", b.dim(self.block_row + self.part_row + dims.mod(lane, SIDE)))
        lane_key = self.own * dims.floordiv(lane, SIDE)
        self.edges = Edges(stage, self.attention, self.softmax, tiles.keys, lane_key)
        self._place_operands()
        self.lse = self.attention.root.results[1]
        results = WaveResults(stage, p, self.unit, self.lane, (tiles.rows, tiles.depth), self.lse)
        rows, sums = self._attend()
        self._write(results, rows, sums)
        stage.finish()

    def _place_operands(self) -> None:
        """Where tiles lie in shared memory: K, then V; Q where both are."""
        a, tiles = self.attention, self.tiles
        q, k, v = a.operands
        rank = len(self.stage.kernel.graph.shape(v.a.value))
        columns = Side(v.a.value, v.a.batch, (rank - 1,), (rank - 2,), v.a.view)
        turned = Product(v.root, columns, columns, None, v.batch, (v.k,), a.keys, v.k, v.dtype, v.result)
        size = lambda count, depth: tile_size(count, depth, 2, tiles.padded)
        self.v_start = size(tiles.keys, tiles.depth)
        total = max(self.v_start + size(tiles.depth, tiles.keys), size(tiles.rows, tiles.depth))
        room = self.stage.shared(ir.RankedTensorType(q.a.value.type).element_type, total)
        head, shared = dims.symbol("batch"), dims.floordiv(dims.symbol("batch"), a.gqa)
        tile = lambda p, count, depth, batch: TileOperand(self.stage, p, p.a, count, depth, batch, room, tiles.padded)
        self.q = tile(q, tiles.rows, tiles.depth, head)
        self.k = tile(k, tiles.keys, tiles.depth, shared)
        self.v = tile(turned, tiles.depth, tiles.keys, shared)

    # -- tiles of keys ---------------------------------------------------------------------------------------------
    def _attend(self) -> tuple[RowState, list[ir.Value]]:
        """Maxima, totals and sums after all keys."""
        b, tiles, keys = self.b, self.tiles, self.attention.product.k
        zero = b.constant(0, b.index)
        queries = self._queries()
        self.k.store(self.k.load(zero, zero), 0)
        self._barrier()
        whole, end = dims.floordiv(keys, tiles.keys), dims.ceildiv(keys, tiles.keys)
        if whole == 1 and end == 2:  # two bodies in a row would need the registers of both
            whole = 0
        if self.attention.causal:
            last = dims.dim_min(self.block_row + tiles.rows, keys)
            whole = dims.floordiv(dims.dim_min(self.block_row + 1, keys), tiles.keys)
            whole, end = (b.bind_unique("keys", b.dim(x)) for x in (whole, dims.ceildiv(last, tiles.keys)))
        softmax, fragments = self.softmax, tiles.fragments
        top, total = [softmax.constant(float("-inf"))] * fragments, [softmax.constant(0.0)] * fragments
        sums = b.constant(0.0, ir.VectorType.get([self.unit.results], b.f32))
        state = [*top, *total, *[sums] * (fragments * tiles.depth // SIDE)]
        for edge, low, high in ((False, 0, whole), (True, whole, end)):
            if low == high:
                continue

            def tile(t: Dim, carried: list[ir.Value], edge: bool = edge) -> list[ir.Value]:
                return self._tile(t, end, edge, queries, carried)

            state = b.loop_carried("edge" if edge else "t", low, high, state, tile, kept=True)
        return row_state(state[: 2 * fragments]), state[2 * fragments :]

    def _queries(self) -> list[list[ir.Value]]:
        """What this lane holds of Q, by 16 rows and steps."""
        b = self.b
        self.q.store(self.q.load(b.dim(self.block_row), b.constant(0, b.index)), 0)
        self._barrier()
        first = b.dim(self.part_row)
        steps = range(0, self.tiles.depth, self.unit.step)
        made = [
            [self._operand(self.q, 0, b.binary("arith.addi", first, b.constant(SIDE * f, b.index)), k) for k in steps]
            for f in range(self.tiles.fragments)
        ]
        self._barrier()
        return made

    def _operand(
        self, side: TileOperand, start: int, first: ir.Value, k0: int, columns: tuple[int, int] | None = None
    ) -> ir.Value:
        """What a lane holds of rows `first …` and a step from `k0` on; of `columns`: D number `part` of `parts`."""
        b, unit = self.b, self.unit

        def load(row: ir.Value, k: ir.Value, rest: int, count: int) -> ir.Value:
            row = unit.column(b, row, *columns) if columns else row
            row = b.binary("arith.addi", first, b.binary("arith.addi", row, b.constant(rest, b.index)))
            return side.read(start, row, b.binary("arith.addi", k, b.constant(k0, b.index)), count)

        return unit.load(b, self.lane, load, columns is not None)

    def _tile(
        self, t: Dim, end: Dim, edge: bool, queries: list[list[ir.Value]], carried: list[ir.Value]
    ) -> list[ir.Value]:
        b, tiles, fragments = self.b, self.tiles, self.tiles.fragments
        before, sums = row_state(carried[: 2 * fragments]), carried[2 * fragments :]
        values = self.v.load(b.constant(0, b.index), b.dim(tiles.keys * t))
        self._keep_order()
        scores = self.edges.masked(self._scores(queries), dims.symbol("batch"), self.lane_row, t, edge)
        step = self.softmax.step(scores, before)
        corrections = step.corrections()
        total = [
            self.softmax.binary("addf", self.softmax.binary("mulf", x, c), s)
            for x, c, s in zip(before.total, corrections, step.sums)
        ]
        weights = self._weights(step.weights)
        self._keep_order()
        self.v.store(values, self.v_start)
        following = self.k.load(b.dim(tiles.keys * dims.dim_min(t + 1, end - 1)), b.constant(0, b.index))
        self._barrier()
        sums = self._products(sums, corrections, weights)
        self._keep_order()
        self.k.store(following, 0)
        self._barrier()
        return [*step.top, *total, *sums]

    def _scores(self, queries: list[list[ir.Value]]) -> list[ir.Value]:
        """`Q K` as single values, in the order of the layout."""
        b, unit, tiles = self.b, self.unit, self.tiles
        zero = b.constant(0.0, ir.VectorType.get([unit.results], b.f32))
        made: list[list[ir.Value]] = [[] for _ in queries]
        for first in range(0, tiles.keys, unit.step):
            for part in range(unit.parts):
                d = [zero for _ in queries]
                for step in range(tiles.depth // unit.step):
                    at = b.constant(first, b.index)
                    keys = self._operand(self.k, 0, at, step * unit.step, (part, unit.parts))
                    d = [unit.multiply(b, x, q[step], keys) for x, q in zip(d, queries)]
                for f, x in enumerate(d):
                    made[f] += [_element(self, x, i) for i in range(unit.results)]
        return [x for row in made for x in row]

    def _weights(self, weights: Sequence[ir.Value]) -> list[list[ir.Value]]:
        """Weights as left operands of the second product, by 16 rows and steps of keys."""
        b, own = self.b, self.own
        element = ir.Type.parse(self.attention.product.dtype)
        made = []
        for first in range(0, len(weights), own):
            wide = b.value("vector.from_elements", weights[first : first + own], ir.VectorType.get([own], b.f32))
            if element == ir.BF16Type.get():
                narrow = self._bf16(wide, own)
            else:
                narrow = b.value("arith.truncf", (wide,), ir.VectorType.get([own], element))
            made.append(self.unit.operand(b, self.lane, narrow))
        steps = self.tiles.keys // self.unit.step
        return [made[f * steps : (f + 1) * steps] for f in range(self.tiles.fragments)]

    def _bf16(self, weights: ir.Value, count: int) -> ir.Value:
        """Weights rounded to bf16, without what LLVM does for NaN: a row with one has a total that is NaN."""
        b, wide = self.b, ir.VectorType.get([count], self.b.i32)
        halves = ir.VectorType.get([count], ir.IntegerType.get_signless(16))
        number = lambda x: b.constant(x, wide)
        bits = b.value("arith.bitcast", (weights,), wide)
        odd = b.value("arith.andi", (b.value("arith.shrui", (bits, number(16)), wide), number(1)), wide)
        bits = b.value("arith.addi", (bits, b.value("arith.addi", (odd, number(0x7FFF)), wide)), wide)
        high = b.value("arith.trunci", (b.value("arith.shrui", (bits, number(16)), wide),), halves)
        return b.value("arith.bitcast", (high,), ir.VectorType.get([count], ir.BF16Type.get()))

    def _products(
        self, sums: Sequence[ir.Value], corrections: Sequence[ir.Value], weights: list[list[ir.Value]]
    ) -> list[ir.Value]:
        """`correction O + P V`, by 16 rows and 16 columns."""
        b, unit, tiles = self.b, self.unit, self.tiles
        columns = tiles.depth // SIDE
        made = []
        for i, x in enumerate(sums):
            by = b.value("vector.broadcast", (corrections[i // columns],), x.type)
            made.append(b.value("arith.mulf", (x, by), x.type))
        for j in range(columns):
            for step in range(tiles.keys // unit.step):
                at = b.constant(SIDE * j, b.index)
                values = self._operand(self.v, self.v_start, at, step * unit.step, (0, 1))
                for f, own in enumerate(weights):
                    made[f * columns + j] = unit.multiply(b, made[f * columns + j], own[step], values)
        return made

    # -- results ---------------------------------------------------------------------------------------------------
    def _write(self, results: WaveResults, rows: RowState, sums: Sequence[ir.Value]) -> None:
        """Outputs, and log-sum-exps by the first lane of a row."""
        b, softmax, p, columns = self.b, self.softmax, self.attention.product, self.tiles.depth // SIDE
        totals = softmax.finished(rows)
        for f, (top, total) in enumerate(zip(rows.top, totals)):
            for result, buffer in zip(self.stage.kernel.graph.results, self.stage.outputs):
                if result == self.lse:
                    self._write_lse(buffer, self.lane_row + SIDE * f, softmax.lse(top, total))
            inverse = softmax.inverse(total)
            row = b.dim(self.block_row + self.part_row + SIDE * f)
            for j in range(columns):
                if isinstance(p.n, int) and SIDE * j >= p.n:
                    break
                x = sums[f * columns + j]
                x = b.value("arith.mulf", (x, b.value("vector.broadcast", (inverse,), x.type)), x.type)
                results.store(row, b.constant(SIDE * j, b.index), x)

    def _write_lse(self, buffer: ir.Value, row: Dim, value: ir.Value) -> None:
        b, p = self.b, self.attention.product
        compare = lambda x, y, how: b.value("arith.cmpi", (b.dim(x), b.dim(y)), b.i1, predicate=b.number(how, b.i64))
        first = compare(dims.floordiv(dims.symbol("in_wave"), SIDE), 0, 0)
        inside = b.value("arith.andi", (first, compare(row, p.m, 2)), b.i1)

        def store() -> list[ir.Value]:
            b.op("memref.store", (value, buffer, b.dim(dims.symbol("batch") * p.m + row)))
            return []

        b.branch(inside, [], store)

    def _barrier(self) -> None:
        self.b.op(self.unit.barrier, ())

    def _keep_order(self) -> None:
        """Let the scheduler move nothing across: it would wait for loads where they begin."""
        self.b.op("amdgpu.sched_barrier", (), attributes={"opts": self.b.attribute("#amdgpu.sched_barrier_opt<none>")})


def _element(stage: WaveAttention, vector: ir.Value, i: int) -> ir.Value:
    position = ir.DenseI64ArrayAttr.get([i])
    return stage.b.value("vector.extract", (vector,), stage.b.f32, static_position=position)
