"""Which tiles an attention is cut into: query rows of a block, keys at a time, and how blocks share the work.

    time = waves * weight        (weight: what a tile of that many query rows takes, against one of 128)

Weights and tile sizes were fitted to an H200 (benchmarks/results/gpu_attention.md); a symbolic size counts as a large one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ....dialects import dims
from ....dialects.dims import Dim
from ..matmul.tiles import LARGE, SMS

CHUNK = 64  # elements of a head in one row of 128 bytes
DEPTHS = (64, 128, 256)  # widths of heads that kernels are made for; others are filled up with zeros
FEW_ROWS = 64  # query rows up to which keys are split over blocks
WAVE_FILL = 0.8  # how full the waves of pairs must be, else blocks take tiles as they come
MOST_SPLITS = 64
SPLIT_TILES = 2.0  # what merging parts costs, in tiles of keys

# by depth: (consumers, weight) of which the better is taken
_CONSUMERS = {64: ((3, 1.23), (2, 1.0), (1, 0.65)), 128: ((2, 1.0), (1, 0.62)), 256: ((2, 1.0), (1, 0.6))}
_KEYS = {64: 128, 128: 128, 256: 64}
# Two blocks of one consumer on a multiprocessor: while one loads or writes, the other multiplies. They read keys twice as
# often, so that they pay where rows have few keys; by depth: keys at a time, keys up to which they are faster, causal and
# not (an unknown number counts as few where they lose less than 3 % at many).
_SHARING = {64: (128, {True: 2048, False: 2048}), 128: (64, {True: 768, False: 0})}
# registers of the producer's and of a consumer's threads by (blocks a multiprocessor, consumers); 0: as they start
_REGISTERS = {(1, 1): (0, 0), (2, 1): (40, 216), (1, 2): (40, 232), (1, 3): (32, 160)}


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
    blocks_per_sm: int = 1

    @property
    def rows(self) -> int:
        return 64 * self.consumers

    @property
    def threads(self) -> int:
        return 128 * (self.consumers + 1)

    @property
    def registers(self) -> tuple[int, int]:
        """A thread of the producer and of a consumer; 0: as many as it starts with."""
        return _REGISTERS[self.blocks_per_sm, self.consumers]


def depth_for(width: int) -> int | None:
    """The depth that heads of `width` elements are filled up to; None if there is none."""
    return next((d for d in DEPTHS if width <= d), None)


def choose_attention_tiles(
    depth: int, queries: Dim, keys: Dim, batches: Dim, causal: bool, few: bool
) -> AttentionTiles:
    """The fastest configuration by the model; `few` if keys may be split over blocks."""
    if few:
        return _tiles_of_few(depth, keys, batches)
    rows = queries if isinstance(queries, int) else LARGE
    heads = batches if isinstance(batches, int) else SMS
    if shared := _sharing(depth, keys, causal):
        return _in_order(shared, rows, heads, causal)

    def time(consumers: int, weight: float) -> tuple[float, int]:
        tiles = -(-rows // (64 * consumers)) * heads
        return (-(-tiles // SMS) * weight, -consumers)

    consumers = min(_CONSUMERS[depth], key=lambda c: time(*c))[0]
    made = AttentionTiles(depth, consumers, _KEYS[depth], lazy=8 if depth == 256 else 0)
    return _in_order(made, rows, heads, causal)


def _sharing(depth: int, keys: Dim, causal: bool) -> AttentionTiles | None:
    """Two blocks on a multiprocessor, if that is faster."""
    if depth not in _SHARING:
        return None
    step, limits = _SHARING[depth]
    few = keys <= limits[causal] if isinstance(keys, int) else depth == CHUNK
    return AttentionTiles(depth, 1, step, blocks_per_sm=2) if few else None


def _tiles_of_few(depth: int, keys: Dim, batches: Dim) -> AttentionTiles:
    """One consumer: two blocks on a multiprocessor if there are heads for that, else parts of the keys."""
    if depth in _SHARING and isinstance(batches, int) and batches >= SMS:
        return AttentionTiles(depth, 1, _SHARING[depth][0], stages=3, blocks_per_sm=2)
    step = _KEYS[depth]
    splits = key_splits(batches, dims.ceildiv(keys, step), SMS)
    return AttentionTiles(depth, 1, step, stages=4 if depth == CHUNK else 3, splits=splits)


def _in_order(tiles: AttentionTiles, rows: int, heads: int, causal: bool) -> AttentionTiles:
    """With runs of causal tiles of equal length where that fills the multiprocessors."""
    if not causal:
        return tiles
    places, count = SMS * tiles.blocks_per_sm, -(-rows // tiles.rows)
    pairs = -(-count // 2) * heads
    paired = count * heads > places and pairs / (places * -(-pairs // places)) >= WAVE_FILL
    return replace(tiles, run=2 if paired else 1, persistent=paired)


def key_splits(batches: Dim, tiles: Dim, places: int) -> Dim:
    """Parts of the keys of each of `batches`, `tiles` tiles long, that fill `places` for blocks."""
    if not isinstance(batches, int) or not isinstance(tiles, int):
        return dims.dim_max(dims.dim_min(dims.floordiv(places, dims.dim_max(batches, 1)), tiles), 1)

    def time(splits: int) -> float:
        return -(-batches * splits // places) * -(-tiles // splits) + (SPLIT_TILES if splits > 1 else 0)

    return min(range(1, min(tiles, MOST_SPLITS) + 1), key=time)


def key_range(keys: Dim, step: int, splits: Dim, causal: bool, end_row: Dim, part: Dim) -> tuple[Dim, Dim]:
    """The tiles of `step` keys that query rows before `end_row` attend to, in a part of the keys."""
    if causal:
        return 0, dims.ceildiv(dims.dim_min(end_row, keys), step)
    tiles = dims.ceildiv(keys, step)
    if splits == 1:
        return 0, dims.dim_max(tiles, 1)
    return dims.floordiv(tiles * part, splits), dims.floordiv(tiles * (part + 1), splits)


def query_tile(number: Dim, count: Dim, causal: bool, run: int) -> Dim:
    """Which of a head's `count` tiles of query rows is the `number`th that is taken.

    Causal tiles differ in length. In runs of two a long and a short one are taken, so that runs are of equal length (but
    for the one in the middle of an odd number, alone); else long ones come first.
    """
    if not causal:
        return number
    if run == 1:
        return count - 1 - number
    half, odd = dims.floordiv(number, 2), dims.mod(number, 2)
    return (1 - odd) * (count - 1 - half) + odd * half
