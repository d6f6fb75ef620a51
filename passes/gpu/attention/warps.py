"""Attention by warps that multiply by themselves, for chips since sm_80 (FlashAttention-2).

A block has the query rows of its warps, 16 for each fragment of a warp. K and V have a tile each in shared memory; while
one is used the other is on its way:

    Q and K(last) are under way
    for each tile j of keys, backwards:
        wait for K(j);  all warps are here            V(j) begins
        S = Q K(j)
        wait for V(j);  all warps are here            K(j - 1) begins
        mask;  softmax;  O = O correction + P V(j)
    O / total -> epilogue

Scores lie in registers as the left operand of the second product does, so that P is rounded and multiplied where it is.
Only the first tiles taken have keys beyond the diagonal or the end; later ones skip these masks. With `splits` each
part of the keys writes O, maxima and totals to scratch memory (`parts`).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from mlir import ir

from ....dialects import dims
from ....dialects.dims import Dim
from ..ampere.tile import ELEMENTS, Lanes, Tile
from ..ampere.warp import Warp
from ..gpu_kernel import GpuKernel
from ..hopper.ptx import Ptx
from ..lane_places import divisible
from ..matmul.wgmma import Operand
from .edges import Edges
from .layout import QUADS
from .problem import Attention
from .results import Results
from .softmax import RowState, Softmax, row_state
from .tiles import key_range, query_tile
from .warp_tiles import FRAGMENT, WarpTiles

LOWEST = -3e38  # below all scores: the maximum of a row that has seen no key, whose weights must be 0 and not NaN
HELD = 128  # elements of a thread's query rows that stay in registers
STEP = 16  # elements along K of one product


class WarpAttention:
    """One attention as a stage of `kernel`; `parts` are scratch buffers (O, maxima, totals) if keys are split."""

    def __init__(
        self, kernel: GpuKernel, attention: Attention, operands: tuple[Operand, Operand, Operand], tiles: WarpTiles,
        parts: tuple[int, int, int] | None = None,
    ):  # fmt: skip
        self.attention, self.tiles = attention, tiles
        p = attention.product
        self.row_tiles = dims.ceildiv(p.m, tiles.rows)
        self.stage = stage = kernel.stage(tiles.threads, (self.row_tiles * p.batches * tiles.splits, 1, 1))
        self.b, self.ptx, self.warp = stage.b, Ptx(stage), Warp(stage)
        self._name_threads()
        q, k, v = operands
        self.q = self._tile(0, tiles.rows, q)
        self.k = self._tile(self.q.bytes, tiles.keys, k)
        self.v = self._tile(self.q.bytes + self.k.bytes, tiles.keys, v)
        stage.dynamic_shared = self.q.bytes + self.k.bytes + self.v.bytes
        exact = attention.mask is not None or attention.scale <= 0
        self.softmax = Softmax(self.b, attention.scale, QUADS, exact=exact)
        self.edges = Edges(stage, attention, self.softmax, tiles.keys, 2 * dims.symbol("quad"))
        self.results = Results(stage, attention, self.softmax, tiles, parts)
        self.element = p.dtype

    def _name_threads(self) -> None:
        b = self.b
        thread = b.bind("thread", self.stage.thread())
        lane = b.bind("in_warp", b.dim(dims.mod(thread, 32)))
        b.bind("quad", b.dim(dims.mod(lane, 4)))
        first = FRAGMENT * self.tiles.fragments * dims.floordiv(thread, 32)
        self.warp_row = b.bind("warp_row", b.dim(first)) if self.tiles.warps > 1 else 0

    def _tile(self, first: int, rows: int, operand: Operand) -> Tile:
        stage, source = self.stage, operand.source
        buffer = stage.scratch[source] if isinstance(source, int) else stage.inputs[source]
        return Tile(self.warp, self.ptx, first, rows, self.tiles.depth, operand.matrix, buffer)

    def emit(self) -> None:
        """Write the stage."""
        b, stage, tiles, a = self.b, self.stage, self.tiles, self.attention
        place = b.bind("place", stage.block())
        head, row, part = self._place(place)
        self.head, self.row = b.bind("head", b.dim(head)), b.bind("row", b.dim(row))
        self.shared = b.bind("shared", b.dim(dims.floordiv(self.head, a.gqa)))
        bind = lambda x: x if isinstance(x, int) else b.bind_unique("keys", b.dim(x))
        span = key_range(a.product.k, tiles.keys, tiles.splits, a.causal, self.row + tiles.rows, part)
        low, high = map(bind, span)
        self.low, self.whole = low, bind(self._whole_tiles())
        self.q.fill(self.head, self.row, edge=True)
        self.k.fill(self.shared, tiles.keys * (high - 1), edge=True)
        self.warp.commit()
        self.lane_rows = [
            b.bind_unique(
                "row", b.dim(self.row + self.warp_row + FRAGMENT * f + dims.floordiv(dims.symbol("in_warp"), 4))
            )
            for f in range(tiles.fragments)
        ]
        self.lanes = Lanes(self.warp, self.ptx, self.k.pitch)
        self.q_lanes = Lanes(self.warp, self.ptx, self.q.pitch, self.warp_row) if tiles.warps > 1 else self.lanes
        self.held = self._held()
        state = b.loop_carried("k", low, high, self._start(), lambda j, s: self._step(high - 1 - j + low, s))
        for lane_row, (rows, sums) in zip(self.lane_rows, self._split(state)):
            self.results.write(self.head, lane_row, part, rows, sums)
        stage.finish()

    def _place(self, place: Dim) -> tuple[Dim, Dim, Dim]:
        """Head, first query row and part of the keys of block number `place`; causal tiles that take long come first."""
        p, tiles = self.attention.product, self.tiles
        if self.attention.causal:
            head, number = dims.mod(place, p.batches), dims.floordiv(place, p.batches)
            return head, tiles.rows * query_tile(number, self.row_tiles, True, 1), 0
        part, rest = dims.mod(place, tiles.splits), dims.floordiv(place, tiles.splits)
        return dims.floordiv(rest, self.row_tiles), tiles.rows * dims.mod(rest, self.row_tiles), part

    def _whole_tiles(self) -> Dim:
        """The first tiles, of which every query row of this block attends to every key."""
        whole = dims.floordiv(self.attention.product.k, self.tiles.keys)
        if not self.attention.causal:
            return whole
        return dims.dim_min(dims.floordiv(self.row, self.tiles.keys), whole)

    # -- registers -------------------------------------------------------------------------------------------------
    def _held(self) -> list[list[list[ir.Value]]] | None:
        """The left operands of the first product, by fragment and step, where there are registers for them."""
        if self.tiles.depth * self.tiles.fragments > HELD:
            return None
        self.warp.wait(0)
        self.stage.barrier()
        steps = range(0, self.tiles.depth, STEP)
        return [[self.q.left(self.q_lanes, FRAGMENT * f, k) for k in steps] for f in range(self.tiles.fragments)]

    def _start(self) -> list[ir.Value]:
        softmax, zero = self.softmax, self.softmax.constant(0.0)
        top = softmax.constant(-inf if softmax.exact else LOWEST)
        one = [top, top, zero, zero, *[zero] * (self.tiles.depth // 2)]
        return one * self.tiles.fragments

    def _split(self, state: Sequence[ir.Value]) -> list[tuple[RowState, list[ir.Value]]]:
        """Maxima and totals, and sums, of each fragment."""
        size = len(state) // self.tiles.fragments
        parts = [list(state[i : i + size]) for i in range(0, len(state), size)]
        return [(row_state(part[:4]), part[4:]) for part in parts]

    # -- a tile of keys --------------------------------------------------------------------------------------------
    def _step(self, tile: Dim, state: list[ir.Value]) -> list[ir.Value]:
        b, warp, softmax, keys = self.b, self.warp, self.softmax, self.tiles.keys
        tile = b.bind_unique("tile", b.dim(tile))
        warp.wait(0)
        self.stage.barrier()
        self.v.fill(self.shared, keys * tile, edge=True)
        warp.commit()
        scores = self._scores()
        warp.wait(0)
        self.stage.barrier()

        def following() -> list[ir.Value]:
            self.k.fill(self.shared, keys * (tile - 1), edge=False)
            return []

        b.branch(self.b.compare("slt", self.low, tile), [], following)
        warp.commit()
        masked = self._masked(scores, tile)
        after, pairs, all_sums = [], [], []
        for f, (before, sums) in enumerate(self._split(state)):
            step = softmax.step(masked[f], before)
            by = step.corrections()
            all_sums.append([softmax.binary("mulf", x, by[QUADS.row(i)]) for i, x in enumerate(sums)])
            pairs.append(softmax.pairs(step.weights, ir.Type.parse(self.element)))
            totals = [b.value("math.fma", (t, c, s), b.f32) for t, c, s in zip(before.total, by, step.sums)]
            after.append([*step.top, *totals])
        all_sums = self._values(all_sums, pairs)
        return [x for rows, sums in zip(after, all_sums) for x in (*rows, *sums)]

    def _masked(self, scores: list[list[ir.Value]], tile: Dim) -> list[list[ir.Value]]:
        """Scores with what does not count as -inf; only tiles at an edge take the time, unless there is a mask."""
        a, size = self.attention, len(scores[0])

        def masked(edge: bool) -> list[ir.Value]:
            made = [self.edges.masked(s, self.head, row, tile, edge) for s, row in zip(scores, self.lane_rows)]
            return [x for one in made for x in one]

        if a.mask is not None:
            found = masked(True)
        elif not a.causal and divisible(a.product.k, self.tiles.keys):
            found = masked(False)
        else:
            at_edge, types = self.b.compare("sge", tile, self.whole), [self.b.f32] * (size * len(scores))
            found = self.b.branch(at_edge, types, lambda: masked(True), lambda: masked(False))
        return [found[i : i + size] for i in range(0, len(found), size)]

    def _scores(self) -> list[list[ir.Value]]:
        """`Q K` of each fragment."""
        zero, columns = self.softmax.constant(0.0), self.tiles.keys
        scores = [[zero] * (columns // 2) for _ in range(self.tiles.fragments)]
        for number, k in enumerate(range(0, self.tiles.depth, STEP)):
            left = [
                self.held[f][number] if self.held else self.q.left(self.q_lanes, FRAGMENT * f, k)
                for f in range(self.tiles.fragments)
            ]
            for column in range(0, columns, 2 * ELEMENTS):
                self._multiply(scores, left, self.k.right(self.lanes, column, k), column)
        return scores

    def _values(self, sums: list[list[ir.Value]], pairs: list[list[ir.Value]]) -> list[list[ir.Value]]:
        """`sums + P V` of each fragment."""
        for number, k in enumerate(range(0, self.tiles.keys, STEP)):
            left = [words[4 * number : 4 * number + 4] for words in pairs]
            for column in range(0, self.tiles.depth, 2 * ELEMENTS):
                self._multiply(sums, left, self.v.turned(self.lanes, k, column), column)
        return sums

    def _multiply(
        self, sums: list[list[ir.Value]], left: Sequence[Sequence[ir.Value]], right: Sequence[ir.Value], column: int
    ) -> None:
        """Add to the sums of 16 columns from `column` on, in place."""
        for own, words in zip(sums, left):
            for half in range(2):
                first = column // 2 + 4 * half
                own[first : first + 4] = self.warp.multiply(
                    self.element, words, right[2 * half : 2 * half + 2], own[first : first + 4]
                )
