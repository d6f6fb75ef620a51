"""Products by the matrix instructions of waves: tiles in shared memory, fragments and the epilogue in registers.

A block computes `rows` x `columns` of the result, its waves parts of it, as 16 x 16 fragments (matrix_units):

    load tile 0, store it to buffer 0, barrier
    for t = 0 .. tiles:
        load tile t + 1 into registers               in flight during the products
        products of buffer t % 2
        store tile t + 1 to buffer (t + 1) % 2       last read before the barrier of the step before
        barrier
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mlir import ir

from ....dialects import dims
from ....dialects.dims import Dim
from ..gpu_kernel import GpuKernel, element_bytes
from .conv_product import Patches, taps_first
from .matrix_units import SIDE, MultiplyAdd, Unit
from .problem import Product
from .tile_operands import CHUNK, TileOperand, tile_size
from .wave_results import WaveResults

DEPTH = 64  # bytes of K in a tile
LEAST_CHANNELS = 8  # of a group of a convolution's results: half the rows of a fragment
BUSY = 96  # blocks that keep the smallest of the GPUs at work


@dataclass(frozen=True)
class Tile:
    """What a block computes, and how many waves share its rows and its columns."""

    rows: int
    columns: int
    row_waves: int
    column_waves: int


_SMALL, _MEDIUM = Tile(16, 64, 1, 4), Tile(64, 64, 2, 2)
_LARGE = {64: Tile(128, 128, 2, 2), 32: Tile(128, 128, 4, 2)}  # by the width of a wave: a lane's results fit


def choose_tile(m: Dim, n: Dim, batches: Dim, wave: int) -> Tile:
    """Large tiles where there are enough of them to keep the GPU busy."""
    if isinstance(m, int) and m <= SIDE:
        return _SMALL
    large = _LARGE[wave]
    if all(isinstance(x, int) for x in (m, n, batches)):
        blocks = dims.ceildiv(m, large.rows) * dims.ceildiv(n, large.columns) * batches
        if isinstance(blocks, int) and blocks >= BUSY:
            return large
    return _MEDIUM


def suits(product: Product) -> bool:
    """False for a convolution whose results would be mostly padding."""
    few = isinstance(product.m, int) and product.m < LEAST_CHANNELS
    return not (few and product.root.name == "lamina.conv")


class WaveProduct:
    """One product as a stage of `kernel`."""

    def __init__(self, kernel: GpuKernel, product: Product, unit: Unit):
        if isinstance(product.b, Patches) and product.b.channels % CHUNK == 0:
            product = taps_first(product)
        self.kernel, self.graph, self.product, self.unit = kernel, kernel.graph, product, unit
        self.tile = tile = choose_tile(product.m, product.n, product.batches, kernel.wave)
        self.fragments = (tile.rows // tile.row_waves // SIDE, tile.columns // tile.column_waves // SIDE)
        self.across = dims.ceildiv(product.n, tile.columns)
        grid = (self.across * dims.ceildiv(product.m, tile.rows), 1, product.batches)
        self.stage = kernel.stage(kernel.wave * tile.row_waves * tile.column_waves, grid)
        self.b = self.stage.b

    def emit(self) -> None:
        """Write the stage."""
        b, stage, tile = self.b, self.stage, self.tile
        thread, size = stage.thread(), b.constant(self.kernel.wave, b.index)
        self.lane = b.binary("arith.remui", thread, size)
        wave = b.binary("arith.divui", thread, size)
        waves = b.constant(tile.column_waves, b.index)
        part = [n * SIDE for n in self.fragments]
        self.part_row = b.binary("arith.muli", b.binary("arith.divui", wave, waves), b.constant(part[0], b.index))
        self.part_column = b.binary("arith.muli", b.binary("arith.remui", wave, waves), b.constant(part[1], b.index))
        place = b.bind("tile", stage.block())
        self.row = b.dim(dims.floordiv(place, self.across) * tile.rows)
        self.column = b.dim(dims.mod(place, self.across) * tile.columns)
        self.batch = b.bind("batch", stage.block("z"))
        sums = self._products()
        results = WaveResults(stage, self.product, self.unit, self.lane, (tile.rows, tile.columns))
        for number, value in enumerate(sums):
            i, j = divmod(number, self.fragments[1])
            results.store(self._place(self.row, self.part_row, i), self._place(self.column, self.part_column, j), value)
        stage.finish()

    def _products(self) -> list[ir.Value]:
        """The sums of all fragments, row by row."""
        b, stage, product, unit = self.b, self.stage, self.product, self.unit
        depth = DEPTH // element_bytes(ir.RankedTensorType(product.a.value.type).element_type)
        padded = self.kernel.wave < 64  # waves of 32 have no registers for the addresses of chunks that trade places
        sides = []
        for side, count in ((product.a, self.tile.rows), (product.b, self.tile.columns)):
            element = ir.RankedTensorType(side.value.type).element_type
            size = tile_size(count, depth, element_bytes(element), padded)
            room = stage.shared(element, 2 * size)
            sides.append(TileOperand(stage, product, side, count, depth, self.batch, room, padded))
        firsts = self.row, self.column
        tiles = dims.ceildiv(product.k, depth)
        zero = b.constant(0.0, ir.VectorType.get([unit.results], b.f32))
        for side, first in zip(sides, firsts):
            side.store(side.load(first, b.constant(0, b.index)), 0)
        self._barrier()

        def step(t: Dim, sums: list[ir.Value]) -> list[ir.Value]:
            following = b.dim(dims.dim_min(t + 1, tiles - 1) * depth)  # the last step reads its tile again
            loaded = [side.load(first, following) for side, first in zip(sides, firsts)]
            self._keep_order()
            for k in range(0, depth, unit.step):
                sums = self._multiply(sides, dims.mod(t, 2), k, sums)
                if isinstance(unit, MultiplyAdd) or k + unit.step == depth:  # its operands fill the registers
                    self._keep_order()
            for side, vectors in zip(sides, loaded):
                side.store(vectors, side.size * dims.mod(t + 1, 2))
            self._barrier()
            return sums

        # several bodies at once would not fit into the registers
        return b.loop_carried("t", 0, tiles, [zero] * (self.fragments[0] * self.fragments[1]), step, kept=True)

    def _multiply(self, sides: Sequence[TileOperand], buffer: Dim, k0: int, sums: Sequence[ir.Value]) -> list[ir.Value]:
        """Add the products of `unit.step` of K from `k0` on."""
        b, unit = self.b, self.unit
        held = []
        for number, (side, first) in enumerate(zip(sides, (self.part_row, self.part_column))):
            for fragment in range(self.fragments[number]):

                def load(
                    row: ir.Value, k: ir.Value, rest: int, count: int, side=side, first=first, at=fragment
                ) -> ir.Value:
                    if side is sides[1]:
                        row = unit.column(b, row, 0, 1)
                    row = b.binary("arith.addi", row, b.constant(at * SIDE + rest, b.index))
                    k = b.binary("arith.addi", k, b.constant(k0, b.index))
                    return side.read(side.size * buffer, b.binary("arith.addi", first, row), k, count)

                held.append(unit.load(b, self.lane, load, number == 1))
        rows, columns = held[: self.fragments[0]], held[self.fragments[0] :]
        pairs = [(r, c) for r in rows for c in columns]
        return [unit.multiply(b, d, r, c) for d, (r, c) in zip(sums, pairs)]

    def _place(self, tile: ir.Value, part: ir.Value, fragment: int) -> ir.Value:
        """The first row or column of a fragment."""
        b = self.b
        return b.binary("arith.addi", b.binary("arith.addi", tile, part), b.constant(fragment * SIDE, b.index))

    def _barrier(self) -> None:
        """Wait until what all waves have written to shared memory is there; loads from global memory stay under way."""
        self.b.op(self.unit.barrier, ())

    def _keep_order(self) -> None:
        """Let the scheduler move nothing across: it would wait for the loads between the first products."""
        if self.unit.barrier == "amdgpu.lds_barrier":  # an AMD GPU
            opts = self.b.attribute("#amdgpu.sched_barrier_opt<none>")
            self.b.op("amdgpu.sched_barrier", (), attributes={"opts": opts})
