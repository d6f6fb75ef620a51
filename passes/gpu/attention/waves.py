"""Attention by the matrix instructions of waves (`matmul/matrix_units`): a wave has some query rows, a block their keys.

    Q -> shared memory -> registers; K of tile 0 -> shared memory
    for each tile of keys, those on the diagonal or at the end apart, since only these are masked:
        load V of the tile                          in flight during the first product
        S = Q K;  softmax of S in registers
        store V;  load K of the next tile;  barrier
        O = correction O + P V                      corrected only where the maximum of a row has grown much
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
from ..matmul.tile_operands import CHUNK, TileOperand
from ..matmul.wave_results import WaveResults
from .edges import Edges
from .layout import Functions, Layout
from .problem import Attention
from .softmax import RowState, Softmax, Step, row_state
from .tiles import key_range, query_tile
from .wave_tiles import WaveTiles

LAZY = 8  # powers of two that a maximum may stay behind: weights are 256 at most, as f16 takes them
CROWDED = 32  # elements of Q and K that are read at once where sums fill the registers


class WaveAttention:
    """One attention as a stage of `kernel`."""

    def __init__(
        self, kernel: GpuKernel, attention: Attention, unit: Unit, tiles: WaveTiles, functions: Functions,
        parts: tuple[int, int, int] | None = None,
    ):  # fmt: skip
        self.kernel, self.attention, self.unit, self.tiles, self.parts = kernel, attention, unit, tiles, parts
        p = attention.product
        self.row_tiles = dims.ceildiv(p.m, tiles.rows)
        self.stage = kernel.stage(kernel.wave * tiles.waves, (self.row_tiles * p.batches * tiles.splits, 1, 1))
        self.b = self.stage.b
        self.groups = kernel.wave // SIDE  # lanes that share a row
        self.own = unit.group // self.groups  # neighbouring keys of a group in a lane
        exact = attention.mask is not None or attention.scale <= 0
        # a vote is one scalar register; few rows wait for memory
        lazy = LAZY if unit.scalars and not attention.few else 0
        self.softmax = Softmax(self.b, attention.scale, self._layout(functions), lazy, exact)

    def _layout(self, functions: Functions) -> Layout:
        """Scores of a lane: by 16 rows, then by groups of keys, then its own of the group."""
        each, own, group = self.tiles.keys // self.groups, self.own, self.unit.group
        return Layout(
            rows=tuple(SIDE * f for f in range(self.tiles.fragments)),
            distances=tuple(d for d in (16, 32) if d < self.kernel.wave),
            row=lambda i: i // each,
            column=lambda i: i % each // own * group + i % own,
            functions=functions,
            wave=self.kernel.wave,
        )

    def emit(self) -> None:
        """Write the stage."""
        b, stage, tiles, p = self.b, self.stage, self.tiles, self.attention.product
        head, tile, part = self._place(b.bind("place", stage.block()))
        b.bind("batch", b.dim(head))
        b.bind("tile", b.dim(tile))
        self.part = b.bind("part", b.dim(part)) if self.parts else 0
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
        results = (
            None if self.parts else WaveResults(stage, p, self.unit, self.lane, (tiles.rows, tiles.depth), self.lse)
        )
        rows, sums = self._attend()
        if results is None:
            self._keep(rows, sums)
        else:
            self._write(results, rows, sums)
        if attributes := self.softmax.functions.attributes:
            text = lambda words: ir.ArrayAttr.get([ir.StringAttr.get(w) for w in words])
            stage.op.attributes["passthrough"] = ir.ArrayAttr.get([text(pair) for pair in attributes])
        stage.finish()

    def _place(self, place: Dim) -> tuple[Dim, Dim, Dim]:
        """Head, number of the tile of query rows and part of the keys of a block."""
        part, rest = dims.mod(place, self.tiles.splits), dims.floordiv(place, self.tiles.splits)
        return dims.floordiv(rest, self.row_tiles), dims.mod(rest, self.row_tiles), part

    def _place_operands(self) -> None:
        """Where tiles lie in shared memory."""
        a, tiles = self.attention, self.tiles
        _, k, v = a.operands
        rank = len(self.stage.kernel.graph.shape(v.a.value))
        columns = Side(v.a.value, v.a.batch, (rank - 1,), (rank - 2,), v.a.view)
        turned = Product(v.root, columns, columns, None, v.batch, (v.k,), a.keys, v.k, v.dtype, v.result)
        self.k_start, self.v_start, self.p_start, total = tiles.starts
        self.room = room = self.stage.shared(ir.RankedTensorType(k.a.value.type).element_type, total)
        head = dims.symbol("batch")
        shared = self.b.bind("shared", self.b.dim(dims.floordiv(head, a.gqa)))
        tile = lambda p, count, depth, batch: TileOperand(
            self.stage, p, p.a, count, depth, batch, room, tiles.padded, self.unit.scalars
        )
        self.q = tile(a.rows_of_queries, tiles.rows, tiles.depth, head)
        self.k = tile(k, tiles.keys, tiles.depth, shared)
        self.v = tile(turned, tiles.depth, tiles.keys, shared)
        self.q.share(self.block_row, a.product.m)

    # -- tiles of keys ---------------------------------------------------------------------------------------------
    def _attend(self) -> tuple[RowState, list[ir.Value]]:
        """Maxima, totals and sums after all keys."""
        b, tiles = self.b, self.tiles
        queries = self._queries()
        low, whole, end = self._key_tiles()
        self.k.store(self.k.load(tiles.keys * low, 0), self.k_start)
        self.unit.barrier(self.b)
        softmax, fragments = self.softmax, tiles.fragments
        top, total = [softmax.constant(float("-inf"))] * fragments, [softmax.constant(0.0)] * fragments
        sums = b.constant(0.0, ir.VectorType.get([self.unit.results], b.f32))
        state = [*top, *total, *[sums] * (fragments * tiles.depth // SIDE)]
        for edge, first, high in ((False, low, whole), (True, whole, end)):
            if first == high:
                continue

            def tile(t: Dim, carried: list[ir.Value], edge: bool = edge) -> list[ir.Value]:
                self._share(t, dims.ceildiv(self.attention.keys, tiles.keys))
                return self._tile(t, end, edge, queries, carried)

            state = b.loop_carried("edge" if edge else "t", first, high, state, tile, kept=True)
        return row_state(state[: 2 * fragments]), state[2 * fragments :]

    def _key_tiles(self) -> tuple[Dim, Dim, Dim]:
        """The first tile of keys, the first that may be masked, and the end."""
        tiles, keys, causal = self.tiles, self.attention.product.k, self.attention.causal
        low, end = key_range(keys, tiles.keys, tiles.splits, causal, self.block_row + tiles.rows, self.part)
        before = dims.dim_min(self.block_row + 1, keys) if causal else keys
        whole = dims.floordiv(before, tiles.keys)
        if whole == 1 and end == 2 or isinstance(whole, int) and not tiles.held and whole != end:
            whole = 0  # two bodies in a row would need the registers of both
        if tiles.splits != 1:
            whole = dims.dim_min(dims.dim_max(whole, low), end)
        return self._bound(low), self._bound(whole), self._bound(end)

    def _bound(self, tile: Dim) -> Dim:
        """A number of a tile of keys, or of tiles, as a symbol of its own."""
        if isinstance(tile, int):
            return tile
        symbol = self.b.bind_unique("keys", self.b.dim(tile))
        self._share(symbol, dims.ceildiv(self.attention.keys, self.tiles.keys) + 1)
        return symbol

    def _share(self, tile: Dim, end: Dim) -> None:
        """State that number `tile` of keys is below `end` and the same in all threads."""
        self.k.share(tile, end)
        self.v.share(tile, end)

    def _queries(self) -> list[list[ir.Value]] | None:
        """What this lane holds of Q, by 16 rows and steps; None where it is read as it is needed."""
        self.q.store(self.q.load(self.block_row, 0), 0)
        if not self.tiles.held:
            return None
        self.unit.barrier(self.b)
        steps = range(0, self.tiles.depth, self.unit.step)
        made = [[self._query(f, k) for k in steps] for f in range(self.tiles.fragments)]
        self.unit.barrier(self.b)
        return made

    def _query(self, fragment: int, k0: int | ir.Value) -> ir.Value:
        """What a lane has of a step of Q from `k0` on."""
        b = self.b
        first = b.binary("arith.addi", b.dim(self.part_row), b.constant(SIDE * fragment, b.index))
        return self._operand(self.q, 0, first, k0)

    def _operand(
        self, side: TileOperand, start: int, first: ir.Value, k0: int | ir.Value, columns: tuple[int, int] | None = None
    ) -> ir.Value:
        """What a lane holds of rows `first …` and a step from `k0` on; of `columns`: D number `part` of `parts`."""
        b, unit = self.b, self.unit
        k0 = b.constant(k0, b.index) if isinstance(k0, int) else k0

        def load(row: ir.Value, k: ir.Value, rest: int, count: int) -> ir.Value:
            row = unit.column(b, row, *columns) if columns else row
            row = b.binary("arith.addi", first, b.binary("arith.addi", row, b.constant(rest, b.index)))
            return side.read(start, row, b.binary("arith.addi", k, k0), count)

        return unit.load(b, self.lane, load, columns is not None)

    def _tile(
        self, t: Dim, end: Dim, edge: bool, queries: list[list[ir.Value]] | None, carried: list[ir.Value]
    ) -> list[ir.Value]:
        tiles, fragments = self.tiles, self.tiles.fragments
        before, sums = row_state(carried[: 2 * fragments]), carried[2 * fragments :]
        values = self.v.load(0, tiles.keys * t)
        self.unit.keep_order(self.b)
        scores = self.edges.masked(self._scores(queries), dims.symbol("batch"), self.lane_row, t, edge)
        step = self.softmax.step(scores, before)
        weights = self._weights(step.weights)
        self.unit.keep_order(self.b)
        self.v.store(values, self.v_start)
        following = self.k.load(tiles.keys * dims.dim_min(t + 1, end - 1), 0)
        self.unit.barrier(self.b)
        old, sums = self._corrected(step, before, sums)
        total = [self.softmax.binary("addf", x, s) for x, s in zip(old, step.sums)]
        sums = self._products(sums, weights)
        self.unit.keep_order(self.b)
        self.k.store(following, self.k_start)
        self.unit.barrier(self.b)
        return [*step.top, *total, *sums]

    def _scores(self, queries: list[list[ir.Value]] | None) -> list[ir.Value]:
        """`Q K` as single values, in the order of the layout."""
        b, unit, tiles = self.b, self.unit, self.tiles
        zero = b.constant(0.0, ir.VectorType.get([unit.results], b.f32))
        fragments = range(tiles.fragments)
        made: list[list[ir.Value]] = [[] for _ in fragments]
        for first in range(0, tiles.keys, unit.group):
            for part in range(unit.parts):
                d = [zero for _ in fragments]
                for k in range(0, tiles.depth, unit.step):
                    own = [queries[f][k // unit.step] if queries else self._query(f, k) for f in fragments]
                    at = b.constant(first, b.index)
                    keys = self._operand(self.k, self.k_start, at, k, (part, unit.parts))
                    d = [unit.multiply(b, x, q, keys) for x, q in zip(d, own)]
                    if not queries and (k + unit.step) % CROWDED == 0:
                        self.unit.keep_order(self.b)
                for f, x in enumerate(d):
                    made[f] += [b.extract(x, i) for i in range(unit.results)]
        return [x for row in made for x in row]

    def _weights(self, weights: Sequence[ir.Value]) -> list[list[ir.Value]]:
        """Weights as left operands of the second product, by 16 rows and steps of keys."""
        b, own = self.b, self.own
        element = ir.Type.parse(self.attention.product.dtype)
        made: list[ir.Value] = []
        for first in range(0, len(weights), own):
            values = b.value("vector.from_elements", weights[first : first + own], ir.VectorType.get([own], b.f32))
            if element == ir.BF16Type.get():
                values = self._bf16(values, own)
            elif element != b.f32:
                values = b.value("arith.truncf", (values,), ir.VectorType.get([own], element))
            made.append(self.unit.operand(b, self.lane, values))
        steps = self.tiles.keys // self.unit.step
        return [made[f * steps : (f + 1) * steps] for f in range(self.tiles.fragments)]

    def _bf16(self, weights: ir.Value, count: int) -> ir.Value:
        """Weights rounded to the nearest bf16, half way up, in one addition.

        LLVM's rounding, half way to even, takes three more instructions, two of them for NaN: a row with one has a total
        that is NaN.
        """
        b, wide = self.b, ir.VectorType.get([count], self.b.i32)
        halves = ir.VectorType.get([count], ir.IntegerType.get_signless(16))
        bits = b.value("arith.bitcast", (weights,), wide)
        bits = b.value("arith.addi", (bits, b.constant(0x8000, wide)), wide)
        high = b.value("arith.trunci", (b.value("arith.shrui", (bits, b.constant(16, wide)), wide),), halves)
        return b.value("arith.bitcast", (high,), ir.VectorType.get([count], ir.BF16Type.get()))

    def _products(self, sums: Sequence[ir.Value], weights: list[list[ir.Value]]) -> list[ir.Value]:
        """`O + P V`, by 16 rows and 16 columns."""
        b, unit, tiles = self.b, self.unit, self.tiles
        columns = tiles.depth // SIDE
        made = list(sums)
        for j in range(columns):
            for step in range(tiles.keys // unit.step):
                at = b.constant(SIDE * j, b.index)
                values = self._operand(self.v, self.v_start, at, step * unit.step, (0, 1))
                for f, own in enumerate(weights):
                    made[f * columns + j] = unit.multiply(b, made[f * columns + j], own[step], values)
            if not tiles.held:
                self.unit.keep_order(self.b)
        return made

    def _corrected(self, step: Step, before: RowState, sums: list[ir.Value]) -> tuple[list[ir.Value], list[ir.Value]]:
        """Totals and O for the maxima of a step, where some row of the wave has another one than before."""
        b, columns, rows = self.b, self.tiles.depth // SIDE, self.tiles.fragments

        def correct() -> list[ir.Value]:
            by = step.corrections()
            made = [self.softmax.binary("mulf", x, c) for x, c in zip(before.total, by)]
            for i, x in enumerate(sums):
                factor = b.value("vector.broadcast", (by[i // columns],), x.type)
                made.append(b.value("arith.mulf", (x, factor), x.type))
            return made

        kept = [*before.total, *sums]
        made = correct() if step.grown is None else b.branch(step.grown, [x.type for x in kept], correct, lambda: kept)
        return made[:rows], made[rows:]

    # -- results ---------------------------------------------------------------------------------------------------
    def _write(self, results: WaveResults, rows: RowState, sums: Sequence[ir.Value]) -> None:
        """Outputs, and log-sum-exps by the first lane of a row."""
        b, softmax, p, columns = self.b, self.softmax, self.attention.product, self.tiles.depth // SIDE
        totals = softmax.finished(rows)
        for f, (top, total) in enumerate(zip(rows.top, totals)):
            for result, buffer in zip(self.stage.kernel.graph.results, self.stage.outputs):
                if result == self.lse:
                    self._of_row(buffer, dims.symbol("batch") * p.m, f, softmax.lse(top, total))
            inverse = softmax.inverse(total)
            row = b.dim(self.block_row + self.part_row + SIDE * f)
            for j in range(columns):
                if isinstance(p.n, int) and SIDE * j >= p.n:
                    break
                x = sums[f * columns + j]
                x = b.value("arith.mulf", (x, b.value("vector.broadcast", (inverse,), x.type)), x.type)
                results.store(row, b.constant(SIDE * j, b.index), x)

    def _keep(self, rows: RowState, sums: Sequence[ir.Value]) -> None:
        """A part to scratch memory: O in rows of `depth` elements, maxima and totals."""
        b, p, tiles, columns = self.b, self.attention.product, self.tiles, self.tiles.depth // SIDE
        assert self.parts is not None
        o, *others = (self.stage.scratch[x] for x in self.parts)
        start = (self.part * p.batches + dims.symbol("batch")) * p.m
        place = self.unit.place(b, self.lane)[1]
        for f, state in enumerate(zip(rows.top, self.softmax.finished(rows))):
            for buffer, value in zip(others, state):
                self._of_row(buffer, start, f, value)
            row = self.lane_row + SIDE * f
            own = [self.unit.settled(b, x) for x in sums[f * columns : (f + 1) * columns]]

            def store(row: Dim = row, own: list[ir.Value] = own) -> list[ir.Value]:
                for j, x in enumerate(own):
                    at = b.binary("arith.addi", b.dim((start + row) * tiles.depth + SIDE * j), place)
                    b.op("vector.store", (x, o, at), attributes={"alignment": ir.IntegerAttr.get(b.i64, CHUNK)})
                return []

            b.branch(self.b.compare("slt", row, p.m), [], store)

    def _of_row(self, buffer: ir.Value, start: Dim, fragment: int, value: ir.Value) -> None:
        """Store what all lanes of a row know, once, at its place from `start` on."""
        b, row = self.b, self.lane_row + SIDE * fragment
        first = self.b.compare("eq", dims.floordiv(dims.symbol("in_wave"), SIDE), 0)
        inside = b.value("arith.andi", (first, self.b.compare("slt", row, self.attention.product.m)), b.i1)

        def store() -> list[ir.Value]:
            b.op("memref.store", (value, buffer, b.dim(start + row)))
            return []

        b.branch(inside, [], store)
