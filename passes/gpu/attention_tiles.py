"""Which tiles an attention is cut into: query rows of a block, keys at a time, and how blocks share the work.

    time = waves * weight        (weight: what a tile of that many query rows takes, against one of 128)

Weights and tile sizes were fitted to an H200 (benchmarks/results/gpu_attention.md); a symbolic size counts as a large one.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...dialects import dims
from ...dialects.dims import Dim
from .matmul_tiles import LARGE, SMS

CHUNK = 64  # elements of a head in one row of 128 bytes
DEPTHS = (64, 128, 256)  # widths of heads that kernels are made for; others are filled up with zeros
FEW_ROWS = 64  # query rows up to which keys are split over blocks
WAVE_FILL = 0.8  # how full the waves of pairs must be, else blocks take tiles as they come
MOST_SPLITS = 64
SPLIT_TILES = 2.0  # what merging parts costs, in tiles of keys

# by depth: (consumers, weight) of which the better is taken, keys at a time, stages
_CONSUMERS = {64: ((3, 1.23), (2, 1.0), (1, 0.65)), 128: ((2, 1.0), (1, 0.62)), 256: ((2, 1.0), (1, 0.6))}
_KEYS = {64: 128, 128: 128, 256: 64}
_REGISTERS = {1: (0, 0), 2: (40, 232), 3: (32, 160)}  # of the producer's and consumers' threads


@dataclass(frozen=True)
class AttentionTiles:
    """A block takes `rows` query rows, 64 a consumer warpgroup, and `keys` keys at a time, `depth` wide.

    `lazy`: the maximum that exponents refer to may stay behind by that many powers of two (0: never).
    `run`: how many tiles of query rows a block takes in a row; `persistent`: blocks stay for several runs.
    """

    depth: int
    consumers: int
    keys: int
    stages: int = 2
    lazy: int = 0
    run: int = 1
    persistent: bool = True
    splits: Dim = 1

    @property
    def rows(self) -> int:
        return 64 * self.consumers

    @property
    def threads(self) -> int:
        return 128 * (self.consumers + 1)

    @property
    def registers(self) -> tuple[int, int]:
        """A thread of the producer and of a consumer; 0: as many as it starts with."""
        return _REGISTERS[self.consumers]


def depth_for(width: int) -> int | None:
    """The depth that heads of `width` elements are filled up to; None if there is none."""
    return next((d for d in DEPTHS if width <= d), None)


def choose_attention_tiles(
    depth: int, queries: Dim, keys: Dim, batches: Dim, causal: bool, few: bool
) -> AttentionTiles:
    """The fastest configuration by the model; `few` if keys may be split over blocks."""
    size = lambda x, large: x if isinstance(x, int) else large
    rows, heads = size(queries, LARGE), size(batches, SMS)
    step = _KEYS[depth]
    if few:
        splits = _splits(batches, dims.ceildiv(keys, step))
        stages = 3 if depth > 64 else 4
        return AttentionTiles(depth, 1, step, stages=stages, splits=splits)

    def time(consumers: int, weight: float) -> tuple[float, int]:
        tiles = -(-rows // (64 * consumers)) * heads
        return (-(-tiles // SMS) * weight, -consumers)

    consumers = min(_CONSUMERS[depth], key=lambda c: time(*c))[0]
    lazy = 8 if depth == 256 else 0
    if not causal:
        return AttentionTiles(depth, consumers, step, lazy=lazy)
    total = -(-rows // (64 * consumers)) * heads
    pairs = -(-total // 2)
    paired = total > SMS and pairs / (SMS * -(-pairs // SMS)) >= WAVE_FILL
    return AttentionTiles(depth, consumers, step, lazy=lazy, run=2 if paired else 1, persistent=paired)


def _splits(batches: Dim, tiles: Dim) -> Dim:
    """Parts of the keys of each of `batches`, `tiles` tiles long, that fill the multiprocessors."""
    if not isinstance(batches, int) or not isinstance(tiles, int):
        return dims.dim_max(dims.dim_min(dims.floordiv(SMS, dims.dim_max(batches, 1)), tiles), 1)

    def time(splits: int) -> float:
        return -(-batches * splits // SMS) * -(-tiles // splits) + (SPLIT_TILES if splits > 1 else 0)

    return min(range(1, min(tiles, MOST_SPLITS) + 1), key=time)


def query_tile(number: Dim, count: Dim, causal: bool, run: int) -> Dim:
    """Which of a head's `count` tiles of query rows is the `number`th that is taken.

    Causal tiles differ in length: in runs of two, long and short ones alternate, so that runs are of equal length; else
    long ones come first.
    """
    if not causal:
        return number
    if run == 1:
        return count - 1 - number
    half, odd = dims.floordiv(number, 2), dims.mod(number, 2)
    return (1 - odd) * (count - 1 - half) + odd * half
