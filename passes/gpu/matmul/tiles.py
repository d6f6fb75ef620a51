"""Which tiles a product of a given shape is cut into, by a model of waves of blocks.

    time = waves * (tile_m * tile_n * K / rate + fixed) (+ the second stage of a split K)

Rates and costs of wgmma were fitted to an H200 (benchmarks/results/gpu_matmul.md), those of `mma.sync` are an A100's by its
data sheet; a symbolic size counts as a large one. Tiles of 192 x 192 fill waves that those of powers of two do not: 33 x 4
of them are the 6304 x 768 of ViT-B for 32 images, one on each multiprocessor.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ....dialects import dims
from ....dialects.dims import Dim
from ..hopper.wgmma import ROW_BYTES

SMS = 132  # of an H200
LARGE = 4096
SHARED_BYTES = 227 * 1024
LATENCY_US = 0.8  # of a copy from the cache
MEMORY_LATENCY_US = 1.2  # and from memory
FIXED_US = 1.2  # a tile's first loads and its epilogue
SPLIT_US = 2.5  # launch and latency of a second stage
SPLITS = (1, 2, 3, 4, 6, 8)
MOST_STAGES = 16
GROUP = 8  # rows of tiles that are computed side by side
MOST_SYMBOLIC = 128 * 128  # of a tile where N is symbolic: its elements are written one by one, which is much code
# (elements of K at most, blocks of 32 of them): so the error is no larger than in plain f32
PROMOTE = ((1023, 2), (2047, 4), (1 << 62, 8))


@dataclass(frozen=True)
class Chip:
    """What the choice assumes of a GPU; the grid is of the device that runs."""

    sms: int
    rate: float  # multiplications of 16-bit elements that a multiprocessor does in a microsecond with large tiles
    memory: float  # bytes that all multiprocessors read from memory in a microsecond


HOPPER = Chip(SMS, 3.3e6, 4.2e6)
AMPERE = Chip(108, 1.2e6, 1.5e6)


@dataclass(frozen=True)
class Tiles:
    """A block computes `m` x `n` with `consumers` warpgroups of `m / consumers` rows each, K in `splits` parts.

    If `alternating` the consumers take tiles of their own in turns: one multiplies while the other writes.
    """

    m: int
    n: int
    consumers: int
    efficiency: float  # of the multiplications, against the best tile
    stages: int = 0
    blocks_per_sm: int = 1
    splits: int = 1
    alternating: bool = False
    promote: int = 0  # blocks of K after which sums are added to others in full f32; 0: never
    parts: int = 1  # of a tile's columns, each by instructions of its own: fewer sums at a time to add to others
    row_bytes: int = ROW_BYTES  # of K in a stage

    @property
    def columns(self) -> int:
        """Of one instruction."""
        return self.n // self.parts

    @property
    def rows(self) -> int:
        """Of one warpgroup."""
        return self.m if self.alternating else self.m // self.consumers

    @property
    def threads(self) -> int:
        return 128 * (self.consumers + 1)


@dataclass(frozen=True)
class WarpTiles:
    """A block of `mma.sync` computes `m` x `n`, each of its warps `warp_m` x `warp_n`, K in `splits` parts.

    K goes by `depth_bytes`, in a ring of `stages`; with `promoted` sums of one such part are added in full f32.
    """

    m: int
    n: int
    warp_m: int
    warp_n: int
    efficiency: float
    depth_bytes: int = 64
    stages: int = 4
    blocks_per_sm: int = 1
    splits: int = 1
    promoted: bool = False

    @property
    def threads(self) -> int:
        return 32 * (self.m // self.warp_m) * (self.n // self.warp_n)

    @property
    def stage_bytes(self) -> int:
        return (self.m + self.n) * self.depth_bytes


# m, n, consumers, efficiency
CONFIGURATIONS = (
    Tiles(192, 192, 3, 1.03),
    Tiles(128, 256, 2, 1.0),
    Tiles(256, 128, 2, 0.98),
    Tiles(128, 192, 2, 0.96),
    Tiles(128, 128, 2, 0.92),
    Tiles(192, 128, 3, 0.9),
    Tiles(256, 64, 2, 0.8),
    Tiles(64, 256, 1, 0.86),
    Tiles(64, 128, 1, 0.8),
    Tiles(64, 96, 1, 0.74),
    Tiles(128, 64, 2, 0.7),
    Tiles(64, 64, 1, 0.66),
    Tiles(64, 32, 1, 0.4),
)
# the other consumer multiplies meanwhile, so writing costs nothing; but only half of the warps write, too few for fused ops
ALTERNATING = (Tiles(192, 128, 2, 0.95, alternating=True),)
SHARING = (Tiles(64, 128, 1, 0.8, blocks_per_sm=2), Tiles(64, 64, 1, 0.66, blocks_per_sm=2))
PROMOTED = (Tiles(128, 128, 2, 0.9), Tiles(128, 64, 2, 0.75), Tiles(64, 128, 1, 0.72), Tiles(64, 64, 1, 0.5))
# sums of 8-bit products, which have few bits, are added after each block, a part of the tile at a time: there is room for as
# many sums again (benchmarks/results/gpu_float8.md)
FLOAT8 = (
    Tiles(256, 128, 2, 0.83),
    Tiles(128, 256, 2, 0.83, parts=2),
    Tiles(128, 192, 2, 0.83),
    Tiles(128, 128, 2, 0.83),
    Tiles(128, 64, 2, 0.65),
    Tiles(64, 128, 1, 0.6),
    Tiles(64, 64, 1, 0.5),
    Tiles(64, 32, 1, 0.4),
)


# their stages take 96 KB of a multiprocessor at most: what all chips since sm_80 have
WARP_CONFIGURATIONS = (
    WarpTiles(128, 256, 64, 64, 1.0),
    WarpTiles(128, 128, 64, 64, 0.9, stages=3, blocks_per_sm=2),
    WarpTiles(64, 128, 32, 64, 0.75, blocks_per_sm=2),
    WarpTiles(64, 64, 32, 32, 0.6, blocks_per_sm=3),
)
# as many sums again are in registers
WARP_PROMOTED = (
    WarpTiles(128, 128, 32, 64, 0.9, promoted=True),
    WarpTiles(64, 64, 32, 32, 0.6, blocks_per_sm=2, promoted=True),
)


@dataclass(frozen=True)
class Wanted:
    """What a product by warpgroups asks of its tiles, beside its size."""

    turned: bool = False  # B lies K by rows: columns come by 64
    promoted: bool = False  # sums are added in full f32 every few blocks
    float8: bool = False  # sums of each block are added in full f32
    plain: bool = False  # nothing is fused to the product
    wide: bool = False  # results are of 32 bits, which take twice as long to write
    unit: int = 0  # the columns of a tile must divide it


def choose_tiles(m: Dim, n: Dim, k: Dim, batches: Dim, wanted: Wanted = Wanted()) -> Tiles:
    """The fastest configuration by the model."""
    sizes = _numbers(m, n, k, batches)
    promote = next(blocks for most, blocks in PROMOTE if sizes[2] <= most) if wanted.promoted else int(wanted.float8)
    fixed = FIXED_US * (2 if wanted.wide else 1)
    unpromoted = (*CONFIGURATIONS, *SHARING, *(ALTERNATING if wanted.plain else ()))
    choices = []
    for tiles in PROMOTED if wanted.promoted else FLOAT8 if wanted.float8 else unpromoted:
        if wanted.turned and tiles.n % 64 or wanted.unit % tiles.n or _is_too_large(tiles, n):
            continue
        if tiles.alternating and count_tiles(tiles, *sizes[:2]) * sizes[3] <= SMS:
            continue  # each block has one tile
        for splits in (1,) if tiles.alternating else SPLITS:
            made = _completed(tiles, splits, promote)
            if splits == 1 or _may_split(made, HOPPER, *sizes):
                choices.append((estimate(made, HOPPER, *sizes, fixed=fixed), -made.m * made.n, made))
    return min(choices, key=lambda c: c[:2])[2]


def choose_warp_tiles(m: Dim, n: Dim, k: Dim, batches: Dim, promoted: bool = False) -> WarpTiles:
    """The same for `mma.sync`."""
    sizes = _numbers(m, n, k, batches)
    choices = []
    for tiles in WARP_PROMOTED if promoted else WARP_CONFIGURATIONS:
        if _is_too_large(tiles, n):
            continue
        for splits in SPLITS:
            made = replace(tiles, splits=splits)
            if splits == 1 or _may_split(made, AMPERE, *sizes):
                choices.append((estimate(made, AMPERE, *sizes), -made.m * made.n, made))
    return min(choices, key=lambda c: c[:2])[2]


def _numbers(m: Dim, n: Dim, k: Dim, batches: Dim) -> tuple[int, int, int, int]:
    """Sizes as the model has them: those that are not known are large, of one batch."""
    m, n, k = (x if isinstance(x, int) else LARGE for x in (m, n, k))
    return m, n, k, batches if isinstance(batches, int) else 1


def _is_too_large(tiles: Tiles | WarpTiles, n: Dim) -> bool:
    """True for large tiles where the number of columns is not known."""
    return not isinstance(n, int) and tiles.m * tiles.n > MOST_SYMBOLIC


def estimate(
    tiles: Tiles | WarpTiles, chip: Chip, m: int, n: int, k: int, batches: int, fixed: float = FIXED_US
) -> float:
    """Microseconds by the model; `fixed` are those of a tile, whatever K is."""
    units = count_tiles(tiles, m, n) * batches * tiles.splits
    together = min(tiles.blocks_per_sm, -(-units // chip.sms))  # blocks that share a multiprocessor
    waves = -(-units // (chip.sms * together))
    depth = -(-k // 64 // tiles.splits)
    least = (m + n) * k * batches * 2 / chip.memory
    product = together * tiles.m * tiles.n * 64 / (chip.rate * tiles.efficiency)
    wait = (MEMORY_LATENCY_US if m <= 64 else LATENCY_US) / (tiles.stages - 1.5)
    alternating = isinstance(tiles, Tiles) and tiles.alternating
    busy = waves * (depth * max(product, wait) + fixed * (not alternating)) + fixed * alternating
    total = FIXED_US + max(busy, least) + 0.1 * min(busy, least)
    if tiles.splits > 1:
        total += SPLIT_US + m * n * batches * 4 * (tiles.splits + 1) / chip.memory
    return total


def place_tile(
    unit: Dim, rows_of_tiles: Dim, columns_of_tiles: Dim, batches: Dim, splits: int
) -> tuple[Dim, Dim, Dim, Dim]:
    """Batch, row and column of tile number `unit`, counted in tiles, and its part of K.

    Tiles go by groups of `GROUP` rows of tiles, whose operands the L2 cache holds.
    """
    part, tile = dims.mod(unit, splits), dims.floordiv(unit, splits)
    each = rows_of_tiles * columns_of_tiles
    batch, tile = (0, tile) if batches == 1 else (dims.floordiv(tile, each), dims.mod(tile, each))
    band, inside = dims.floordiv(tile, GROUP * columns_of_tiles), dims.mod(tile, GROUP * columns_of_tiles)
    height: Dim = GROUP
    if not (isinstance(rows_of_tiles, int) and rows_of_tiles % GROUP == 0):
        height = dims.dim_min(rows_of_tiles - GROUP * band, GROUP)
    row = GROUP * band + dims.mod(inside, height)
    return batch, row, dims.floordiv(inside, height), part


def halved_rows(tiles: Tiles) -> Tiles:
    """The same with half as much of K in a stage, and twice as many stages."""
    return replace(tiles, row_bytes=tiles.row_bytes // 2, stages=min(MOST_STAGES, 2 * tiles.stages))


def count_tiles(tiles: Tiles | WarpTiles, m: int, n: int) -> int:
    """Tiles of one product."""
    return -(-m // tiles.m) * -(-n // tiles.n)


def _may_split(tiles: Tiles | WarpTiles, chip: Chip, m: int, n: int, k: int, batches: int) -> bool:
    """True for few tiles and parts of K that are long enough to fill the ring."""
    return count_tiles(tiles, m, n) * batches < chip.sms and k // tiles.splits >= 4 * (ROW_BYTES // 2)


def _completed(tiles: Tiles, splits: int, promote: int) -> Tiles:
    """With as many stages as fit into shared memory."""
    stage = (tiles.m + tiles.n) * ROW_BYTES
    room = SHARED_BYTES // tiles.blocks_per_sm - 1024
    stages = max(2, min(MOST_STAGES, room // (stage + 16)))
    return replace(tiles, stages=stages, splits=splits, promote=promote)
