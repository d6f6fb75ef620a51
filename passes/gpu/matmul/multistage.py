"""Products by `mma.sync`, on chips since sm_80: tiles of A and B in a ring of stages that copies fill in advance.

    copy parts 0 … stages - 2 of K; wait for part 0; read the first step of it into registers
    for each part of K
      for each step of 32 bytes
        at the last one: wait for the next part, and for all warps (barrier)
        read the next step from shared memory, of the next part at the last one
        at the first ones: copy part + stages - 1 to where the part before was
        multiply this step

A barrier a part is enough: past it, all have read the part before, and what they have copied is there. The steps that are
read ahead keep the matrix units busy over the barrier (CUTLASS's "multistage" main loop).
"""

from __future__ import annotations

from collections.abc import Sequence

from mlir import ir

from ....dialects import dims
from ....dialects.dims import Dim
from ..ampere.warp import Warp
from ..gpu_kernel import WARP, GpuKernel
from ..hopper.ptx import Ptx
from .epilogue import Epilogue, Limits
from .operands import Operand
from .problem import Product
from .staged_tile import BLOCK, STEP_BYTES, Layout, StagedTile
from .sums import keep_sums
from .tiles import WarpTiles, place_tile

EACH = 4  # sums of a lane in 16 x 8


class MultistageProduct:
    """One product as a stage of `kernel`; with `sums`, a scratch buffer, the sums go there instead of the outputs."""

    def __init__(
        self, kernel: GpuKernel, product: Product, a: Operand, c: Operand, tiles: WarpTiles, sums: int | None = None
    ):
        self.product, self.tiles, self.operands, self.sums = product, tiles, (a, c), sums
        self.layouts = tuple(
            Layout(rows, tiles.depth_bytes, o.matrix.turned, o.matrix.bytes) for rows, o in ((tiles.m, a), (tiles.n, c))
        )
        self.steps = tiles.depth_bytes // STEP_BYTES
        self.blocks = (tiles.warp_m // BLOCK, tiles.warp_n // BLOCK)  # of 16 rows, of a warp
        self.rows_of_tiles = dims.ceildiv(product.m, tiles.m)
        self.columns_of_tiles = dims.ceildiv(product.n, tiles.n)
        self.parts = dims.ceildiv(product.k, self.layouts[0].depth)  # of K, in one pass
        units = self.rows_of_tiles * self.columns_of_tiles * product.batches * tiles.splits
        self.stage = kernel.stage(tiles.threads, (units, 1, 1))
        self.stage.blocks_per_sm = tiles.blocks_per_sm
        self.stage.dynamic_shared = tiles.stages * tiles.stage_bytes
        self.b, self.ptx, self.warp = self.stage.b, Ptx(self.stage), Warp(self.stage)

    def emit(self) -> None:
        """Write the stage."""
        b, p, tiles = self.b, self.product, self.tiles
        b.bind("thread", self.stage.thread())
        b.bind("unit", self.stage.block())
        b.bind("in_warp", b.dim(dims.mod(dims.symbol("thread"), WARP)))
        b.bind("quad", b.dim(dims.mod(dims.symbol("in_warp"), 4)))
        counts = self.rows_of_tiles, self.columns_of_tiles
        batch, row, column, part = place_tile(dims.symbol("unit"), *counts, p.batches, tiles.splits)
        names = ("batch", "row", "column", "part")
        batch, row, column, part = (b.bind(n, b.dim(x)) for n, x in zip(names, (batch, row, column, part)))
        row, column = tiles.m * row, tiles.n * column
        across = tiles.n // tiles.warp_n
        number = dims.floordiv(dims.symbol("thread"), WARP)
        own_row, own_column = tiles.warp_m * dims.floordiv(number, across), tiles.warp_n * dims.mod(number, across)
        self.sides = (
            StagedTile(self.ptx, self.operands[0], self.layouts[0], batch, row, own_row, 0, True),
            StagedTile(
                self.ptx, self.operands[1], self.layouts[1], batch, column, own_column, self.layouts[0].bytes, False
            ),
        )
        total = self.parts * len(self.operands[0].planes)
        low, high = dims.floordiv(total * part, tiles.splits), dims.floordiv(total * (part + 1), tiles.splits)
        self._write(batch, row + own_row, column + own_column, part, self._multiply_all(low, high))
        self.stage.finish()

    # -- the ring --------------------------------------------------------------------------------------------------
    def _multiply_all(self, low: Dim, high: Dim) -> list[ir.Value]:
        """The sums of parts `low … high` of K: for each block of rows, of all columns."""
        b, tiles = self.b, self.tiles
        copies = [(side, i) for side in self.sides for i in range(side.copies)]
        for s in range(tiles.stages - 1):
            self._copy(copies, low + s, high, tiles.stage_bytes * s)
            self.warp.commit()
        self._arrive()
        zero = [b.constant(0.0, b.f32)] * (self.blocks[0] * self.blocks[1] * 2 * EACH)
        start = [b.constant(0, b.index), b.constant((tiles.stages - 1) * tiles.stage_bytes, b.index)]
        ahead = self._read(0, 0)
        each = -(-len(copies) // max(self.steps - 1, 1))

        def part(number: Dim, carried: list[ir.Value]) -> list[ir.Value]:
            stages, held, sums = carried[:2], carried[2 : 2 + len(ahead)], carried[2 + len(ahead) :]
            used, filled = b.bind_unique("used", stages[0]), b.bind_unique("filled", stages[1])
            following = [self._next(s) for s in stages]
            after = b.bind_unique("after", following[0])
            made = zero if tiles.promoted else sums
            for step in range(self.steps):
                if step == self.steps - 1:
                    self.warp.commit()
                    self._arrive()
                    coming = self._read(after, 0)
                else:
                    coming = self._read(used, step + 1)
                    self._copy(copies[step * each : (step + 1) * each], number + tiles.stages - 1, high, filled)
                made = self._multiply(held, made)
                held = coming
            if tiles.promoted:
                made = [b.value("arith.addf", pair, b.f32) for pair in zip(sums, made)]
            return [*following, *held, *made]

        return b.loop_carried("number", low, high, [*start, *ahead, *zero], part)[2 + len(ahead) :]

    def _next(self, stage: ir.Value) -> ir.Value:
        """The byte at which the next stage of the ring begins."""
        b, size = self.b, self.tiles.stage_bytes
        last = b.compare("eq", stage, (self.tiles.stages - 1) * size)
        following = b.value("arith.addi", (stage, b.constant(size, b.index)), b.index)
        return b.select(last, 0, following)

    def _copy(self, copies: Sequence[tuple[StagedTile, int]], number: Dim, high: Dim, stage: Dim) -> None:
        """Begin some of a thread's copies of part `number` of K, if there is one."""

        def begin() -> list[ir.Value]:
            for side, i in copies:
                side.copy(i, stage, number, self.parts)
            return []

        if copies:
            self.b.branch(self.b.compare("slt", number, high), [], begin)

    def _arrive(self) -> None:
        """Wait until the oldest part under way is there for all threads."""
        self.warp.wait(self.tiles.stages - 2)
        self.stage.barrier()

    # -- products --------------------------------------------------------------------------------------------------
    def _read(self, stage: Dim, step: int) -> list[ir.Value]:
        """Both operands of one step, four words a block of 16 rows."""
        words = []
        for side, count in zip(self.sides, self.blocks):
            read = [w for i in range(count) for w in side.read(stage, i, step)]
            words += [self.warp.rounded(w) for w in read] if side.rounds else read
        return words

    def _multiply(self, words: Sequence[ir.Value], sums: Sequence[ir.Value]) -> list[ir.Value]:
        dtype = self.product.factors[0]
        left = [words[4 * i : 4 * i + 4] for i in range(self.blocks[0])]
        right = [words[i : i + 2] for i in range(4 * len(left), len(words), 2)]
        made: list[ir.Value] = []
        for i, a in enumerate(left):
            for j, c in enumerate(right):
                at = EACH * (i * len(right) + j)
                made += self.warp.multiply(dtype, a, c, sums[at : at + EACH])
        return made

    # -- results ---------------------------------------------------------------------------------------------------
    def _write(self, batch: Dim, row: Dim, column: Dim, part: Dim, sums: Sequence[ir.Value]) -> None:
        p, tiles = self.product, self.tiles
        row = row + dims.floordiv(dims.symbol("in_warp"), 4)
        rows, columns = (_limits(size, tile) for size, tile in ((p.m, tiles.m), (p.n, tiles.n)))
        each = len(sums) // self.blocks[0]
        for i in range(self.blocks[0]):
            values, at = sums[i * each : (i + 1) * each], row + BLOCK * i
            if self.sums is None:
                Epilogue(self.stage, p).fragment(batch, at, column, values, rows, columns)
            else:
                keep_sums(self.ptx, p, self.sums, part, (batch, at, column), values, rows, columns)


def _limits(size: Dim, tile: int) -> Limits:
    """What of a tile is written: elements that exist."""
    return Limits() if isinstance(size, int) and size % tile == 0 else Limits(end=size)
