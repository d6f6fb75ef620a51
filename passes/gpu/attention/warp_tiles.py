"""Which tiles warps cut an attention into, where each multiplies by itself (`warps`)."""

from __future__ import annotations

from dataclasses import dataclass

from ....dialects import dims
from ....dialects.dims import Dim
from ..matmul.tiles import SMS
from .tiles import key_splits

FRAGMENT = 16  # query rows of one product
FEW_KEYS = 64
# by depth: warps, fragments of a warp, keys at a time: the fastest of six on an H200 (benchmarks/results/gpu_attention.md).
# Two fragments share what is read of K and V, in all registers of a thread; two blocks run on a multiprocessor.
_TILES = {64: (4, 2, 64), 128: (4, 2, 64), 256: (4, 1, 64)}
_SMALL = (4, 1, 64)  # where the others are fewer than two waves of blocks
BLOCKS_OF_FEW = 4  # blocks of one warp that a multiprocessor needs to read as fast as it can


@dataclass(frozen=True)
class WarpTiles:
    """A block takes `rows` query rows, `16 fragments` a warp, and `keys` keys at a time, `depth` wide."""

    depth: int
    warps: int
    fragments: int
    keys: int
    splits: Dim = 1

    @property
    def rows(self) -> int:
        return FRAGMENT * self.fragments * self.warps

    @property
    def threads(self) -> int:
        return 32 * self.warps


def choose_warp_tiles(depth: int, queries: Dim, keys: Dim, batches: Dim, few: bool) -> WarpTiles:
    """Large tiles where there are enough of them; `few` if keys may be split over blocks."""
    if few:
        assert isinstance(queries, int)
        warps = 1 << (-(-queries // FRAGMENT) - 1).bit_length()  # which copy tiles in turns of whole rows
        splits = key_splits(batches, dims.ceildiv(keys, FEW_KEYS), SMS * max(1, BLOCKS_OF_FEW // warps))
        return WarpTiles(depth, warps, 1, FEW_KEYS, splits)
    large = WarpTiles(depth, *_TILES[depth])
    count = dims.ceildiv(queries, large.rows) * batches
    return WarpTiles(depth, *_SMALL) if isinstance(count, int) and count < 4 * SMS else large
