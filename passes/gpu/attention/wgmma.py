"""Attention on Hopper's tensor cores (FlashAttention-3): a producer warpgroup that copies, consumers of 64 query rows.

    producer                          each consumer, with scores S, weights P and sums O in registers
      K(last)                           S = Q K(last);  mask;  softmax
      Q                                 for each tile j of keys before, backwards
      for each tile before              :   S = Q K(j)       O += P V(j + 1)      both under way at once
          K(j), V(j + 1)                    softmax of S                          while the other consumer multiplies
      V(first)                              O *= correction; P = weights
                                        O += P V(first);  O / total -> epilogue

Only the tile of keys that is first taken, the last, has keys beyond the end or beyond the diagonal: a consumer begins at
the tile of its own diagonal and skips later ones. Scores and weights lie in registers the same way, so that P is rounded
and multiplied where it is. Consumers take turns with the tensor cores (named barriers): one multiplies while others
compute exponentials. With `splits` each part of the keys writes O, maxima and totals to scratch memory (`parts`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlir import ir

from ....dialects import dims
from ....dialects.dims import Dim
from ..gpu_kernel import GpuKernel
from ..hopper.ptx import Ptx
from ..hopper.ring import Ring
from ..hopper.warpgroups import specialise
from ..hopper.wgmma import ROW_BYTES, Descriptors, undefined, zeros
from ..matmul.wgmma import Operand
from .edges import Edges
from .layout import QUADS
from .problem import Attention
from .results import Results
from .shared import STEP, HeadTile
from .softmax import RowState, Softmax, row_state
from .tiles import CHUNK, AttentionTiles, key_range, query_tile


class FlashAttention:
    """One attention as a stage of `kernel`; `parts` are scratch buffers (O, maxima, totals) if keys are split."""

    def __init__(
        self, kernel: GpuKernel, attention: Attention, operands: tuple[Operand, Operand, Operand], tiles: AttentionTiles,
        parts: tuple[int, int, int] | None = None,
    ):  # fmt: skip
        self.attention, self.tiles, self.operands = attention, tiles, operands
        p = attention.product
        self.q_tile, self.k_tile = HeadTile(tiles.rows, tiles.depth), HeadTile(tiles.keys, tiles.depth)
        self.v_tile = HeadTile(tiles.keys, tiles.depth, turned=True)
        self.row_tiles = dims.ceildiv(p.m, tiles.rows)
        self.runs_of_head = dims.ceildiv(self.row_tiles, tiles.run)
        self.runs = self.runs_of_head * p.batches * tiles.splits
        places = tiles.blocks_per_sm * dims.symbol("sms")
        grid = dims.dim_min(self.runs, places) if tiles.persistent else self.runs
        self.stage = kernel.stage(tiles.threads, (grid, 1, 1))
        self.stage.blocks_per_sm = tiles.blocks_per_sm
        self.b, self.ptx = self.stage.b, Ptx(self.stage)
        warps = 4 * tiles.consumers
        self.k_first = self.q_tile.bytes
        self.v_first = self.k_first + tiles.stages * self.k_tile.bytes
        barriers = self.v_first + tiles.stages * self.v_tile.bytes
        self.q_ring = Ring(self.ptx, 1, self.q_tile.bytes, barriers, warps)
        self.k_ring = Ring(self.ptx, tiles.stages, self.k_tile.bytes, self.q_ring.end, warps)
        self.v_ring = Ring(self.ptx, tiles.stages, self.v_tile.bytes, self.k_ring.end, warps)
        self.stage.dynamic_shared = self.v_ring.end
        exact = attention.mask is not None or attention.scale <= 0
        self.softmax = Softmax(self.b, attention.scale, QUADS, tiles.lazy, exact)
        self.edges = Edges(self.stage, attention, self.softmax, tiles.keys, 2 * dims.symbol("quad"))
        self.results = Results(self.stage, attention, self.softmax, tiles, parts)
        self.in_turns = tiles.consumers > 1

    def emit(self) -> None:
        """Write the stage."""
        boxes = ((CHUNK, t.rows) for t in (self.q_tile, self.k_tile, self.v_tile))
        self.descriptors = [
            self.stage.descriptor(o.matrix.entry(o.role(self.stage), box)) for o, box in zip(self.operands, boxes)
        ]
        rings = (self.q_ring, self.k_ring, self.v_ring)
        specialise(self.ptx, rings, self.tiles.registers, self._produce, self._consume)

    # -- which tile ------------------------------------------------------------------------------------------------
    def _each_tile(self, name: str, carried: list[ir.Value], body: Any) -> list[ir.Value]:
        """`body(head, first query row, part of the keys, carried)` for the tiles of this block, in order."""
        b, tiles, causal = self.b, self.tiles, self.attention.causal
        bind = lambda x: x if isinstance(x, int) else b.bind_unique("place", b.dim(x))

        def several(run: Dim, state: list[ir.Value]) -> list[ir.Value]:
            part, rest = bind(dims.mod(run, tiles.splits)), bind(dims.floordiv(run, tiles.splits))
            head, number = bind(dims.floordiv(rest, self.runs_of_head)), bind(dims.mod(rest, self.runs_of_head))

            def one(tile: Dim, carried: list[ir.Value]) -> list[ir.Value]:
                row = bind(tiles.rows * query_tile(tile, self.row_tiles, causal, tiles.run))
                return body(head, row, part, carried)

            if tiles.run == 1:
                return one(number, state)
            end = dims.dim_min(tiles.run * number + tiles.run, self.row_tiles)
            return b.loop_carried(f"{name}t", tiles.run * number, end, state, one)

        if not tiles.persistent:
            return several(dims.symbol("first"), carried)
        return b.loop_carried(f"{name}r", dims.symbol("first"), self.runs, carried, several, step=dims.symbol("grid"))

    def _keys(self, end_row: Dim, part: Dim) -> tuple[Dim, Dim]:
        """The tiles of keys that query rows before `end_row` attend to."""
        a, tiles = self.attention, self.tiles
        bind = lambda x: x if isinstance(x, int) else self.b.bind_unique("keys", self.b.dim(x))
        low, high = key_range(a.product.k, tiles.keys, tiles.splits, a.causal, end_row, part)
        return bind(low), bind(high)

    # -- the producer ----------------------------------------------------------------------------------------------
    def _produce(self) -> None:
        b, rings = self.b, (self.q_ring, self.k_ring, self.v_ring)

        def tile(head: Dim, row: Dim, part: Dim, state: list[ir.Value]) -> list[ir.Value]:
            q, k, v = state[:2], state[2:4], state[4:]
            low, high = self._keys(row + self.tiles.rows, part)
            shared = dims.floordiv(head, self.attention.gqa)
            k = self._fill(1, k, shared, high - 1)
            q = self._fill(0, q, head, row, in_rows=True)

            def block(j: Dim, ahead: list[ir.Value]) -> list[ir.Value]:
                at = high - 1 - j + low
                return [*self._fill(1, ahead[:2], shared, at), *self._fill(2, ahead[2:], shared, at + 1)]

            state = b.loop_carried("pk", low + 1, high, [*k, *v], block)
            return [*q, *state[:2], *self._fill(2, state[2:], shared, low)]

        start = [x for ring in rings for x in ring.start(producer=True)]
        self._each_tile("p", start, tile)

    def _fill(self, which: int, state: list[ir.Value], head: Dim, number: Dim, in_rows: bool = False) -> list[ir.Value]:
        """Copy tile `number` of q (0), k (1) or v (2), or the tile from row `number` on, when its stage is empty."""
        ptx = self.ptx
        ring = (self.q_ring, self.k_ring, self.v_ring)[which]
        tile = (self.q_tile, self.k_tile, self.v_tile)[which]
        first = (0, self.k_first, self.v_first)[which]
        at = self.b.bind_unique("filled", state[0])
        full = ring.full(at)
        ptx.mbarrier_wait(ring.empty(at), state[1])
        ptx.mbarrier_expect(full, tile.bytes)
        row = number if in_rows else tile.rows * number
        for chunk in range(tile.depth // CHUNK):
            coordinates = self.operands[which].matrix.coordinates(head, row, CHUNK * chunk)
            to = ptx.shared(first + tile.bytes * at + chunk * tile.rows * ROW_BYTES)
            ptx.tma_load(to, self.descriptors[which], coordinates, full)
        return ring.advance(*state)

    # -- consumers -------------------------------------------------------------------------------------------------
    def _consume(self) -> None:
        b, ptx = self.b, self.ptx
        b.bind("in_warp", b.dim(dims.mod(dims.symbol("thread"), 32)))
        b.bind("quad", b.dim(dims.mod(dims.symbol("in_warp"), 4)))
        self.own = self.b.bind_unique("own", b.dim(dims.symbol("group") - 1))
        self.leader = b.compare("eq", dims.symbol("in_warp"), 0)
        self.described = [Descriptors(ptx, t) for t in (self.q_tile, self.k_tile, self.v_tile)]
        self.q_start = self.described[0].start(64 * ROW_BYTES * self.own)
        if self.in_turns:
            last = b.compare("eq", self.own, self.tiles.consumers - 1)
            b.branch(last, [], lambda: self._pass_turn() or [])
        start = [x for ring in (self.q_ring, self.k_ring, self.v_ring) for x in ring.start(producer=False)]
        self._each_tile("c", start, self._tile)

    def _take_turn(self) -> None:
        """Wait for this consumer's turn on the tensor cores."""
        if self.in_turns:
            self.ptx.barrier(self.own + 1, 256)

    def _pass_turn(self) -> None:
        """Give the next consumer its turn."""
        if self.in_turns:
            self.ptx.barrier(dims.mod(self.own + 1, self.tiles.consumers) + 1, 256, "arrive")

    def _tile(self, head: Dim, block_row: Dim, part: Dim, state: list[ir.Value]) -> list[ir.Value]:
        b, ptx, tiles, softmax = self.b, self.ptx, self.tiles, self.softmax
        q, k, v = state[:2], state[2:4], state[4:]
        row = b.bind_unique("row", b.dim(block_row + 64 * self.own))
        low, end = self._keys(block_row + tiles.rows, part)
        high = self._keys(row + 64, part)[1] if self.attention.causal else end
        lane_row = row + 16 * dims.floordiv(dims.mod(dims.symbol("thread"), 128), 32)
        lane_row = lane_row + dims.floordiv(dims.symbol("in_warp"), 4)
        self.lane_row = b.bind_unique("row", b.dim(lane_row))
        if self.attention.causal and tiles.keys % tiles.rows:  # consumers begin at different tiles
            k, v = self._skip(high, end, k, v)
        q_at, k_at = b.bind_unique("used", q[0]), b.bind_unique("used", k[0])
        ptx.mbarrier_wait(self.q_ring.full(q_at), q[1])
        ptx.mbarrier_wait(self.k_ring.full(k_at), k[1])
        ptx.wgmma_fence()
        scores = ptx.unpack(ptx.wgmma_wait(0, [self._scores(k_at)])[0])
        self._release(self.k_ring, k_at)
        rows, weights = softmax.first(self.edges.masked(scores, head, self.lane_row, high - 1, edge=True))
        element = self._element()
        pairs = softmax.pairs(weights, element)

        def block(j: Dim, carried: list[ir.Value]) -> list[ir.Value]:
            return self._block(head, high - 1 - j + low, carried)

        carried = [*self.k_ring.advance(*k), *v, *rows.values, zeros(ptx, tiles.depth), *pairs]
        carried = b.loop_carried("ck", low + 1, high, carried, block)
        k, v, rows, sums, pairs = self._split(carried)
        self._release(self.q_ring, q_at)
        v_at = b.bind_unique("used", v[0])
        ptx.mbarrier_wait(self.v_ring.full(v_at), v[1])
        ptx.wgmma_fence()
        sums = ptx.wgmma_wait(0, [self._values(sums, pairs, v_at)], pairs)[0]
        self._release(self.v_ring, v_at)
        self.results.write(head, self.lane_row, part, rows, ptx.unpack(sums))
        return [*self.q_ring.advance(*q), *k, *self.v_ring.advance(*v)]

    def _split(
        self, carried: list[ir.Value]
    ) -> tuple[list[ir.Value], list[ir.Value], RowState, ir.Value, list[ir.Value]]:
        return carried[:2], carried[2:4], row_state(carried[4:8]), carried[8], carried[9:]

    def _skip(self, high: Dim, end: Dim, k: list[ir.Value], v: list[ir.Value]) -> tuple[list[ir.Value], list[ir.Value]]:
        """Let tiles pass that lie beyond this consumer's diagonal, turns included."""

        def one(_: Dim, state: list[ir.Value]) -> list[ir.Value]:
            made = []
            for ring, (stage, phase) in ((self.k_ring, state[:2]), (self.v_ring, state[2:])):
                at = self.b.bind_unique("used", stage)
                self.ptx.mbarrier_wait(ring.full(at), phase)
                if ring is self.k_ring:
                    self._take_turn()
                    self._pass_turn()
                self._release(ring, at)
                made += ring.advance(stage, phase)
            return made

        state = self.b.loop_carried("cs", high, end, [*k, *v], one)
        return state[:2], state[2:]

    def _block(self, head: Dim, number: Dim, carried: list[ir.Value]) -> list[ir.Value]:
        """Scores of one tile of keys, while the weights of the tile after it are multiplied with their values."""
        b, ptx, softmax = self.b, self.ptx, self.softmax
        k, v, before, sums, pairs = self._split(carried)
        k_at, v_at = b.bind_unique("used", k[0]), b.bind_unique("used", v[0])
        ptx.mbarrier_wait(self.k_ring.full(k_at), k[1])
        self._take_turn()
        ptx.wgmma_fence()
        scores = self._scores(k_at)
        ptx.mbarrier_wait(self.v_ring.full(v_at), v[1])
        ptx.wgmma_fence()
        sums = self._values(sums, pairs, v_at)
        self._pass_turn()
        made = ptx.unpack(ptx.wgmma_wait(1, [scores])[0])
        self._release(self.k_ring, k_at)
        step = softmax.step(self.edges.masked(made, head, self.lane_row, number, edge=False), before)
        corrections = None if step.grown is not None else step.corrections()
        parts = ptx.unpack(ptx.wgmma_wait(0, [sums], pairs)[0])
        self._release(self.v_ring, v_at)
        element = self._element()
        if corrections is not None:
            sums = ptx.pack(self._corrected(parts, corrections))
            old = [softmax.binary("mulf", t, c) for t, c in zip(before.total, corrections)]
            pairs = softmax.pairs(step.weights, element)
        else:
            pairs = softmax.pairs(step.weights, element)
            sums, *old = self._corrected_if(step.grown, parts, before, step.corrections)
        total = [softmax.binary("addf", x, s) for x, s in zip(old, step.sums)]
        return [*self.k_ring.advance(*k), *self.v_ring.advance(*v), *step.top, *total, sums, *pairs]

    def _corrected(self, parts: Sequence[ir.Value], corrections: Sequence[ir.Value]) -> list[ir.Value]:
        return [self.softmax.binary("mulf", x, corrections[i // 2 % 2]) for i, x in enumerate(parts)]

    def _corrected_if(self, grown: Any, parts: list[ir.Value], before: RowState, corrections: Any) -> list[ir.Value]:
        """Sums and totals, corrected where a maximum has grown."""

        def correct() -> list[ir.Value]:
            by = corrections()
            totals = [self.softmax.binary("mulf", t, c) for t, c in zip(before.total, by)]
            return [self.ptx.pack(self._corrected(parts, by)), *totals]

        keep = lambda: [self.ptx.pack(parts), *before.total]
        types = [self.ptx.struct([self.b.f32] * len(parts)), self.b.f32, self.b.f32]
        return self.b.branch(grown, types, correct, keep)

    def _scores(self, stage: Dim) -> ir.Value:
        """Begin `Q K`; the sums are there after a wait."""
        q, k = self.described[0], self.described[1]
        k_start = k.start(self.k_first + self.k_tile.bytes * stage)
        sums = undefined(self.ptx, self.tiles.keys)
        for step in range(self.tiles.depth // STEP):
            a, c = q.at(self.q_start, 0, step), k.at(k_start, 0, step)
            sums = self.ptx.wgmma(sums, a, c, self.tiles.keys, self.attention.product.factors, fresh=step == 0)
        self.ptx.wgmma_commit()
        return sums

    def _values(self, sums: ir.Value, pairs: Sequence[ir.Value], stage: Dim) -> ir.Value:
        """Begin `sums + P V`."""
        v = self.described[2]
        start = v.start(self.v_first + self.v_tile.bytes * stage)
        for step in range(self.tiles.keys // STEP):
            words = pairs[4 * step : 4 * step + 4]
            at = v.at(start, 0, step)
            sums = self.ptx.wgmma_registers(sums, words, at, self.tiles.depth, self.attention.product.dtype)
        self.ptx.wgmma_commit()
        return sums

    def _release(self, ring: Ring, stage: Dim) -> None:
        self.ptx.mbarrier_arrive(ring.empty(stage), self.leader)

    def _element(self) -> ir.Type:
        return ir.Type.parse(self.attention.product.dtype)
