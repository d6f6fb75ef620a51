"""Products on Hopper's tensor cores: a persistent grid, a producer warpgroup that copies, consumers that multiply.

    for each tile of this block                         for each tile of this block
      for each 128 bytes of K                             for each 128 bytes of K
        wait until the stage is empty                       wait until the stage is full
        copy the tiles of A and B into it (TMA)             64 x n x 32 bytes four times (wgmma)
                                                            release the stage before
                                                          write the tile (epilogue)

Consumers share a tile, or, if they alternate, each has every other tile of the block: named barriers give them turns, and
one multiplies while the other writes. Tiles go by groups of rows of tiles, whose operands the L2 cache holds (`place_tile`).
With `splits`, K is cut and each part's sums go to scratch memory, which a second stage adds in order: the same bits in every
run.
"""

from __future__ import annotations

from collections.abc import Sequence

from mlir import ir

from ....dialects import dims
from ....dialects.dims import Dim
from ..gpu_kernel import GpuKernel
from ..hopper.ptx import WARPGROUP, Ptx, round_up
from ..hopper.ring import Ring
from ..hopper.warpgroups import specialise
from ..hopper.wgmma import Descriptors, SharedTile, undefined, zeros
from .epilogue import Epilogue, Limits
from .operands import Operand
from .patch_operands import PatchOperand, TapOperand
from .problem import Product
from .stack import Stack
from .sums import keep_sums
from .tiles import Tiles, place_tile

AnyOperand = Operand | PatchOperand | TapOperand | Stack
# of a thread of the producer and of a consumer, by the number of consumers; all threads start with the same number
_REGISTERS = {1: (0, 0), 2: (40, 232), 3: (32, 160)}
SM_REGISTERS = 1 << 16
# Blocks of K from which a launch that begins after the one before it is faster: blocks that begin early lie wherever a
# multiprocessor became free, and a long product suffers from that (f32 of 4096 in three planes: 1589 instead of 1139 us by
# the profiler). Measured in benchmarks/results/gpu_matmul.md.
LONG = 32
GROUP_REGISTERS = 26  # of 32 columns in two rows: 8 of a residual, 16 of a scale and a shift, addresses


class WgmmaProduct:
    """One product as a stage of `kernel`; with `sums`, a scratch buffer, the sums go there instead of the outputs."""

    def __init__(
        self, kernel: GpuKernel, product: Product, a: AnyOperand, c: AnyOperand, tiles: Tiles,
        sums: int | None = None,
    ):  # fmt: skip
        self.product, self.tiles, self.operands, self.sums = product, tiles, (a, c), sums
        self.shapes = tuple(
            SharedTile(rows, dtype, o.turned, min(rows, size) if isinstance(size, int) else rows, tiles.row_bytes)
            for rows, size, o, dtype in zip((tiles.m, tiles.n), (product.m, product.n), (a, c), product.factors)
        )
        # what one instruction computes of a consumer's part of the tile: first row and column
        self.pieces = [(r, c) for c in range(0, tiles.n, tiles.columns) for r in range(0, tiles.rows, 64)]
        self.rows_of_tiles = dims.ceildiv(product.m, tiles.m)
        self.columns_of_tiles = dims.ceildiv(product.n, tiles.n)
        # blocks along K; at least one, as LLVM must see, or ptxas takes the sums for set by other instructions
        self.depth = dims.dim_max(a.blocks(product.k, self.shapes[0].depth), 1)
        self.units = self.rows_of_tiles * self.columns_of_tiles * product.batches * tiles.splits
        grid = dims.dim_min(self.units, tiles.blocks_per_sm * dims.symbol("sms"))
        self.stage = kernel.stage(tiles.threads, (grid, 1, 1))
        self.stage.blocks_per_sm = tiles.blocks_per_sm
        self.b, self.ptx = self.stage.b, Ptx(self.stage)
        stage_bytes = self.shapes[0].bytes + self.shapes[1].bytes
        barriers = tiles.stages * stage_bytes
        self.ring = Ring(
            self.ptx, tiles.stages, stage_bytes, barriers, 4 * (1 if tiles.alternating else tiles.consumers)
        )
        self.stage.dynamic_shared = self.ring.end
        self.following: Dim = 0  # of alternating consumers, the other's next unit

    def emit(self) -> None:
        """Write the stage."""
        descriptors = [
            o.descriptors(self.stage, shape.box)
            if isinstance(o, Stack)
            else [self.stage.descriptor(o.entry(o.role(self.stage), shape.box, shape.row_bytes))]
            for o, shape in zip(self.operands, self.shapes)
        ]
        registers = _REGISTERS[self.tiles.consumers]
        specialise(self.ptx, (self.ring,), registers, lambda: self._produce(descriptors), self._consume)

    @property
    def is_long(self) -> bool:
        """True if a tile has so many blocks of K that its launch had better not overlap with others (LONG)."""
        return isinstance(self.depth, int) and self.depth * len(self.operands[0].planes) >= LONG * self.tiles.splits

    # -- which tile ------------------------------------------------------------------------------------------------
    def _place(self, unit: Dim) -> tuple[Dim, Dim, Dim, Dim]:
        """Batch, row and column of a unit's tile, in elements, and its part of K."""
        counts = self.rows_of_tiles, self.columns_of_tiles
        batch, row, column, part = place_tile(unit, *counts, self.product.batches, self.tiles.splits)
        return batch, self.tiles.m * row, self.tiles.n * column, part

    def _rows(self, first: Dim) -> tuple[Dim, Limits]:
        """Where the tile of A's rows from `first` on is loaded from, and which of its rows are written."""
        return _loaded(first, self.tiles.m, self.product.m, 8 if self.shapes[0].turned else 1)

    def _columns(self, first: Dim) -> tuple[Dim, Limits]:
        """The same for columns; the epilogue takes eight at a time."""
        return _loaded(first, self.tiles.n, self.product.n, 8)

    def _range(self, part: Dim) -> tuple[Dim, Dim]:
        """The blocks of K of a part, over all passes."""
        total = self.depth * len(self.operands[0].planes)
        splits = self.tiles.splits
        return dims.floordiv(total * part, splits), dims.floordiv(total * (part + 1), splits)

    # -- the producer ----------------------------------------------------------------------------------------------
    def _produce(self, descriptors: Sequence[Sequence[ir.Value]]) -> None:
        b, ring = self.b, self.ring

        def tile(unit: Dim, carried: list[ir.Value]) -> list[ir.Value]:
            batch, row, column, part = self._place(unit)
            firsts = self._rows(row)[0], self._columns(column)[0]
            sources = [
                o.part(self.stage, given, first) if isinstance(o, Stack) else (given[0], first)
                for o, given, first in zip(self.operands, descriptors, firsts)
            ]
            low, high = self._range(part)

            def block(number: Dim, state: list[ir.Value]) -> list[ir.Value]:
                at = ring.bind("filled", state[0])
                self.ptx.mbarrier_wait(ring.empty(at), state[1])
                self.ptx.mbarrier_expect(ring.full(at), self.shapes[0].copied_bytes + self.shapes[1].copied_bytes)
                start: Dim = ring.stage_bytes * at
                for operand, shape, (descriptor, first) in zip(self.operands, self.shapes, sources):
                    self._copy(operand, shape, descriptor, batch, first, number, start, ring.full(at))
                    start = start + shape.bytes
                return ring.advance(*state)

            return b.loop_carried("pk", low, high, carried, block)

        b.loop_carried(
            "pt", dims.symbol("first"), self.units, ring.start(producer=True), tile, step=dims.symbol("grid")
        )

    def _copy(
        self, operand: AnyOperand, shape: SharedTile, descriptor: ir.Value, batch: Dim, first: Dim, number: Dim, start: Dim,
        full: ir.Value,
    ) -> None:  # fmt: skip
        for row, byte in shape.boxes():
            coordinates = operand.coordinates(batch, first + row, number, shape.depth, self.depth)
            offsets = operand.offsets(number, shape.depth)
            self.ptx.tma_load(self.ptx.shared(start + byte), descriptor, coordinates, full, offsets)

    # -- consumers -------------------------------------------------------------------------------------------------
    def _consume(self) -> None:
        b, tiles = self.b, self.tiles
        b.bind("in_warp", b.dim(dims.mod(dims.symbol("thread"), 32)))
        b.bind("quad", b.dim(dims.mod(dims.symbol("in_warp"), 4)))
        self.leader = self.b.compare("eq", dims.symbol("in_warp"), 0)
        self.described = [Descriptors(self.ptx, shape) for shape in self.shapes]

        def tile(unit: Dim, carried: list[ir.Value]) -> list[ir.Value]:
            batch, row, column, part = self._place(unit)
            low, high = self._range(part)
            zero = [zeros(self.ptx, tiles.columns)] * len(self.pieces)
            if tiles.promote == 1:
                state = self._each_promoted(low, high, [*carried, *zero])
            elif tiles.promote:
                state = self._promoted(low, high, carried, zero)
            else:
                state = self._blocks(low, high, [*carried, *zero])
            self._write(batch, row, column, part, state[2:])
            return state[:2]

        first, grid = dims.symbol("first"), dims.symbol("grid")
        stage, phase = self.ring.start(producer=False)
        if not tiles.alternating:
            b.loop_carried("ct", first, self.units, [stage, phase], tile, step=grid)
            return
        ahead = dims.symbol("group") - 1  # tiles, whose blocks of K the other consumer takes
        total = self._range(0)[1]

        def every_other(unit: Dim, carried: list[ir.Value]) -> list[ir.Value]:
            self.following = unit + grid
            stage, phase = tile(unit, carried)
            return self.ring.skip(stage, phase, total)

        second = self.b.compare("eq", ahead, 1)
        b.branch(second, [], lambda: self.ptx.barrier(1, 2 * WARPGROUP, "arrive") or [])
        start = self.ring.skip(stage, phase, ahead * total)
        b.loop_carried("ct", first + ahead * grid, self.units, start, every_other, step=2 * grid)

    def _promoted(self, low: Dim, high: Dim, carried: list[ir.Value], zero: list[ir.Value]) -> list[ir.Value]:
        """Sums of a few blocks at a time, added in full f32: the tensor core's own additions truncate."""
        step = self.tiles.promote

        def several(first: Dim, state: list[ir.Value]) -> list[ir.Value]:
            done = self._blocks(first, dims.dim_min(first + step, high), [*state[:2], *zero])
            return [*done[:2], *(self._add(x, y) for x, y in zip(state[2:], done[2:]))]

        return self.b.loop_carried("cp", low, high, [*carried, *zero], several, step=step)

    def _each_promoted(self, low: Dim, high: Dim, carried: list[ir.Value]) -> list[ir.Value]:
        """The same for every block, a piece of the tile at a time: the other consumers multiply while this one adds."""
        b, ptx, ring = self.b, self.ptx, self.ring
        last = len(self.pieces) - 1

        def block(number: Dim, state: list[ir.Value]) -> list[ir.Value]:
            stage, phase, *sums = state
            at = ring.bind("used", stage)
            ptx.mbarrier_wait(ring.full(at), phase)
            for number, piece in enumerate(self.pieces):
                ptx.wgmma_fence()
                made = self._multiply(ring.stage_bytes * at, [undefined(ptx, self.tiles.columns)], [piece], fresh=True)
                ptx.wgmma_commit()
                made = ptx.wgmma_wait(0, made)
                if number == last:
                    ptx.mbarrier_arrive(ring.empty(at), self.leader)
                sums[number] = self._add(sums[number], made[0])
            return [*ring.advance(stage, phase), *sums]

        return b.loop_carried("ck", low, high, carried, block)

    def _add(self, x: ir.Value, y: ir.Value) -> ir.Value:
        b, ptx = self.b, self.ptx
        return ptx.pack([b.value("arith.addf", pair, b.f32) for pair in zip(ptx.unpack(x), ptx.unpack(y))])

    def _blocks(self, low: Dim, high: Dim, carried: list[ir.Value]) -> list[ir.Value]:
        """Multiply blocks `low … high` of K into the carried sums; a stage is released one block late."""
        b, ptx, ring, tiles = self.b, self.ptx, self.ring, self.tiles

        def block(number: Dim, state: list[ir.Value]) -> list[ir.Value]:
            stage, phase, before, *sums = state
            at = ring.bind("used", stage)
            ptx.mbarrier_wait(ring.full(at), phase)
            ptx.wgmma_fence()
            sums = self._multiply(ring.stage_bytes * at, sums, self.pieces)
            ptx.wgmma_commit()
            ptx.wgmma_wait(1)
            later = b.all_of([self.leader, b.compare("ne", number, low)])
            ptx.mbarrier_arrive(ring.empty(ring.bind("before", before)), later)
            return [*ring.advance(stage, phase), stage, *sums]

        stage, phase, *sums = carried
        if tiles.alternating:
            ptx.barrier(dims.symbol("group"), 2 * WARPGROUP)
        state = b.loop_carried("ck", low, high, [stage, phase, stage, *sums], block)
        if tiles.alternating:
            self._hand_over()
        sums = ptx.wgmma_wait(0, state[3:])
        ptx.mbarrier_arrive(ring.empty(ring.bind("last", state[2])), self.leader)
        return [*state[:2], *sums]

    def _hand_over(self) -> None:
        """Let the other of two alternating consumers multiply, if it has another tile.

        It must not wait for its stages before: a barrier tells one round of the ring from the next, but not from the one
        after that.
        """
        ptx = self.ptx

        def arrive() -> list[ir.Value]:
            ptx.barrier(3 - dims.symbol("group"), 2 * WARPGROUP, "arrive")
            return []

        self.b.branch(self.b.compare("slt", self.following, self.units), [], arrive)

    def _own_row(self) -> Dim:
        """The first row of a tile that this warpgroup computes."""
        return 0 if self.tiles.alternating else self.tiles.rows * (dims.symbol("group") - 1)

    def _multiply(
        self, start: Dim, sums: list[ir.Value], pieces: Sequence[tuple[int, int]], fresh: bool = False
    ) -> list[ir.Value]:
        """Add the products of one stage to the sums of `pieces`; if `fresh`, they are the sums."""
        tiles, (a, c) = self.tiles, self.described
        turned = (self.shapes[0].turned, self.shapes[1].turned)
        own = tiles.row_bytes * self._own_row()
        a_start, c_start = a.start(start + own), c.start(start + self.shapes[0].bytes)
        for step in range(self.shapes[0].steps):
            for i, (row, column) in enumerate(pieces):
                described = a.at(a_start, row, step), c.at(c_start, column, step)
                anew = fresh and step == 0
                sums[i] = self.ptx.wgmma(sums[i], *described, tiles.columns, self.product.factors, turned, anew)
        return sums

    def _ahead(self) -> int:
        """Groups of 32 columns whose other operands fit into registers beside a thread's sums."""
        tiles = self.tiles
        registers = _REGISTERS[tiles.consumers][1] or min(255, SM_REGISTERS // tiles.threads // tiles.blocks_per_sm)
        return max(1, (registers - tiles.rows * tiles.n // WARPGROUP) // GROUP_REGISTERS)

    def _write(self, batch: Dim, row: Dim, column: Dim, part: Dim, sums: Sequence[ir.Value]) -> None:
        p, thread = self.product, dims.symbol("thread")
        (row, rows), (column, columns) = self._rows(row), self._columns(column)
        warp = dims.floordiv(dims.mod(thread, 128), 32)
        own = row + self._own_row() + 16 * warp + dims.floordiv(dims.symbol("in_warp"), 4)
        for (down, across), packed in zip(self.pieces, sums):
            values, at = self.ptx.unpack(packed), (own + down, column + across)
            if self.sums is None:
                Epilogue(self.stage, p, ahead=self._ahead()).fragment(batch, *at, values, rows, columns)
            else:
                keep_sums(self.ptx, p, self.sums, part, (batch, *at), values, rows, columns)


def _loaded(first: Dim, tile: int, size: Dim, unit: int) -> tuple[Dim, Limits]:
    """Where a tile is loaded from that starts at `first`, and what of it is written.

    The last tile of a size that is no multiple starts earlier, to lie within the tensor: copies that reach beyond it
    are slow. It starts at a multiple of `unit`: the innermost coordinate of a copy is of 16 bytes.
    """
    if isinstance(size, int):
        if size % tile == 0:
            return first, Limits()
        if size < tile:
            return first, Limits(end=size)
        return dims.dim_min(first, round_up(size - tile, unit)), Limits(first, size if size % unit else None)
    return dims.dim_max(dims.dim_min(first, round_up(size - tile, unit)), 0), Limits(first, size)
