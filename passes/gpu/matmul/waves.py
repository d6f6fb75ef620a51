"""Products by the matrix instructions of waves: tiles in shared memory, fragments and the epilogue in registers.

A block computes `rows` x `columns` of the result, its waves parts of it, as 16 x 16 fragments (matrix_units):

    load tile 0, store it to buffer 0, barrier
    for t = 0 .. tiles:
        load tile t + 1 into registers               in flight during the products
        products of buffer t % buffers
        barrier, where there is one buffer
        store tile t + 1 to buffer (t + 1) % buffers
        barrier

With two buffers a loop's body has two steps, so that places in shared memory are constants. CDNA's 64 kB hold two blocks
of large tiles with one buffer each: while a block stores, the other multiplies. RDNA's 128 kB hold two of both.
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
from .tiles import LARGE
from .wave_results import WaveResults

DEPTH = 64  # bytes of K in a tile
LEAST_CHANNELS = 8  # of a group of a convolution's results: half the rows of a fragment
BUFFERS = {64: 1, 32: 2}  # of shared memory, by the width of a wave
BUSY = 96  # blocks that keep the smallest of the GPUs at work


@dataclass(frozen=True)
class Tile:
    """What a block computes, and how many waves share its rows and its columns.

    `efficiency`: of the multiplications, against the best tile, by how many bytes a wave reads for each.
    """

    rows: int
    columns: int
    row_waves: int
    column_waves: int
    efficiency: float = 1.0

    def blocks(self, m: int, n: int) -> int:
        """How many of them cover `m` x `n`."""
        return -(-m // self.rows) * -(-n // self.columns)


_SMALL, _MEDIUM = Tile(16, 64, 1, 4), Tile(64, 64, 2, 2, 0.6)
# Large ones of AMD's matrix instructions, by the width of a wave: waves take 64 rows or more by 64 columns, whose results
# are up to 128 registers. Where an operand is computed as it is read, or is patches, that takes registers, too.
_LARGE = {
    64: (Tile(256, 128, 2, 2), Tile(128, 128, 2, 2, 0.9), Tile(64, 256, 1, 4, 0.85)),
    32: (Tile(256, 128, 4, 2), Tile(128, 128, 2, 2, 0.9), Tile(64, 256, 1, 4, 0.85)),
}
_COMPUTED = {
    64: (Tile(128, 128, 2, 2, 0.9), Tile(64, 256, 1, 4, 0.85)),
    32: (Tile(128, 128, 4, 2, 0.9), Tile(64, 256, 2, 4, 0.85)),
}
_OTHERS = (Tile(128, 128, 4, 2),)
MOST_ROWS = 128  # of a tile where M is symbolic: it may be small


def choose_tile(product: Product, unit: Unit, wave: int) -> Tile:
    """The tile that takes the least time, padding included, of those of which there are enough to keep the GPU busy.

    A symbolic M counts as a large one; where N is symbolic, results are written one by one, which is much code for many.
    """
    m, n, batches = product.m, product.n, product.batches
    if isinstance(m, int) and m <= SIDE:
        return _SMALL
    if not isinstance(n, int):
        return _MEDIUM
    known, count = m if isinstance(m, int) else LARGE, batches if isinstance(batches, int) else 1
    large = _OTHERS
    if unit.op in ("amdgpu.mfma", "amdgpu.wmma"):
        in_place = product.a.view is not None and product.b.view is not None
        large = (_LARGE if in_place else _COMPUTED)[wave]
    tiles = [t for t in large if count * t.blocks(known, n) >= BUSY and (known == m or t.rows <= MOST_ROWS)]
    return min([*tiles, _MEDIUM], key=lambda t: t.rows * t.columns * t.blocks(known, n) / t.efficiency)


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
        self.tile = tile = choose_tile(product, unit, kernel.wave)
        self.fragments = (tile.rows // tile.row_waves // SIDE, tile.columns // tile.column_waves // SIDE)
        self.buffers = BUFFERS[kernel.wave]
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
        self.row = dims.floordiv(place, self.across) * tile.rows
        self.column = dims.mod(place, self.across) * tile.columns
        self.batch = b.bind("batch", stage.block("z"))
        sums = self._products()
        results = WaveResults(stage, self.product, self.unit, self.lane, (tile.rows, tile.columns))
        for number, value in enumerate(sums):
            i, j = divmod(number, self.fragments[1])
            results.store(self._place(self.row, self.part_row, i), self._place(self.column, self.part_column, j), value)
        stage.finish()

    def _products(self) -> list[ir.Value]:
        """The sums of all fragments, row by row."""
        b, unit = self.b, self.unit
        depth = DEPTH // element_bytes(ir.RankedTensorType(self.product.a.value.type).element_type)
        sides = self._sides(depth)
        tiles = dims.ceildiv(self.product.k, depth)
        for side, first in zip(sides, (self.row, self.column)):
            side.store(side.load(first, 0), 0)
        self.unit.barrier(self.b)

        def steps(t: Dim, sums: list[ir.Value]) -> list[ir.Value]:
            for buffer in range(self.buffers):
                sums = self._step(sides, self.buffers * t + buffer, buffer, tiles, depth, sums)
            return sums

        zero = b.constant(0.0, ir.VectorType.get([unit.results], b.f32))
        sums = [zero] * (self.fragments[0] * self.fragments[1])
        if tiles == 1:
            return self._multiply(sides, 0, depth, sums)
        # where the number of tiles is unknown, a tile beyond the end is zeros
        pairs = (dims.floordiv if isinstance(tiles, int) else dims.ceildiv)(tiles, self.buffers)
        # several bodies at once would not fit into the registers
        sums = b.loop_carried("t", 0, pairs, sums, steps, kept=True)
        if isinstance(tiles, int) and tiles % self.buffers:
            sums = self._multiply(sides, 0, depth, sums)
        return sums

    def _sides(self, depth: int) -> list[TileOperand]:
        """Both operands, in tiles of `depth` elements along K."""
        stage, product, tile, wave = self.stage, self.product, self.tile, self.kernel.wave
        padded = wave < 64  # waves of 32 have no registers for the addresses of chunks that trade places
        made = []
        for side, count in ((product.a, tile.rows), (product.b, tile.columns)):
            element = ir.RankedTensorType(side.value.type).element_type
            room = stage.shared(element, self.buffers * tile_size(count, depth, element_bytes(element), padded))
            made.append(TileOperand(stage, product, side, count, depth, self.batch, room, padded, self.unit.scalars))
            made[-1].share(dims.symbol("tile"), stage.grid[0])
        return made

    def _step(
        self, sides: Sequence[TileOperand], t: Dim, buffer: int, tiles: Dim, depth: int, sums: list[ir.Value]
    ) -> list[ir.Value]:
        """Add the products of tile `t`, and bring the next one, of `tiles`, to its buffer."""
        following = self._following(sides, t + 1, tiles)
        loaded = [side.load(first, depth * following) for side, first in zip(sides, (self.row, self.column))]
        self.unit.keep_order(self.b)
        sums = self._multiply(sides, buffer, depth, sums)
        if self.buffers == 1:
            self.unit.barrier(self.b)
        for side, vectors in zip(sides, loaded):
            side.store(vectors, side.size * ((buffer + 1) % self.buffers))
        self.unit.barrier(self.b)
        return sums

    def _following(self, sides: Sequence[TileOperand], t: Dim, tiles: Dim) -> Dim:
        """Tile `t`, or the last tile again where there is none beyond the end."""
        b = self.b
        place = b.dim(t)
        if isinstance(tiles, int):
            place = b.value("arith.minui", (place, self._last_tile(tiles)), b.index)
        symbol = b.bind_unique("step", place)
        for side in sides:
            side.share(symbol, tiles)
        return symbol

    def _last_tile(self, tiles: int) -> ir.Value:
        """Its number, of which LLVM knows nothing where it would see that some step is never beyond the end.

        Of what just grows with a loop it keeps 64 bits for each of a lane's addresses.
        """
        b = self.b
        with b.at_level(0):
            last = b.constant(tiles - 1, b.index)
            return self.unit.opaque(b, last) if self.buffers > 1 and self.unit.scalars else last

    def _multiply(self, sides: Sequence[TileOperand], buffer: int, depth: int, sums: list[ir.Value]) -> list[ir.Value]:
        """Add the products of the tiles in `buffer`."""
        for k in range(0, depth, self.unit.step):
            sums = self._multiply_step(sides, buffer, k, sums)
            if isinstance(self.unit, MultiplyAdd) or k + self.unit.step == depth:  # its operands fill the registers
                self.unit.keep_order(self.b)
        return sums

    def _multiply_step(
        self, sides: Sequence[TileOperand], buffer: int, k0: int, sums: Sequence[ir.Value]
    ) -> list[ir.Value]:
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

    def _place(self, tile: Dim, part: ir.Value, fragment: int) -> ir.Value:
        """The first row or column of a fragment."""
        b = self.b
        return b.binary("arith.addi", b.binary("arith.addi", b.dim(tile), part), b.constant(fragment * SIDE, b.index))
