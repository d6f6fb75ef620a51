"""How waves cut an attention, by what fits into their registers and the shared memory of two blocks.

A lane holds, for each 16 query rows of its wave, its part of Q, of a tile's scores and of the sums O:

    wave of 64, f16 heads of 128, 32 rows      Q 32, scores 32, O 64 registers of 256 (two waves a SIMD)
    wave of 32, f16 heads of 128, 16 rows      Q 32 (64 on gfx11, where both halves hold all), scores 32, O 64 of 256
    wave of 32, f16 heads of 64, 32 rows       Q 32, scores 64, O 64 of 256; 16 rows on gfx11

Where Q does not fit beside O it stays in shared memory. Keys come 64 at a time, but fewer where K and V would take more
than half of the 64 kB that two blocks share, and on gfx11, whose operands take twice the registers.
Waves of 32 have no registers to spare for addresses and take `padded` tiles, of which 128 kB hold as many blocks as the
registers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ....dialects import dims
from ....dialects.dims import Dim
from ..matmul.matrix_units import SIDE, Interleaved, MultiplyAdd, Unit
from ..matmul.tile_operands import tile_size
from .problem import Attention
from .tiles import key_splits

NARROW = 32  # heads that fill half of the least depth of all GPUs
THREADS = 256
ROOM = 32 * 1024  # bytes of K and V, or of Q
MOST_SHARED = 64 * 1024  # bytes that a block may have, and of multiply-adds, which NVIDIA's chips make too
MOST_SIMT = 48 * 1024
MOST_KEYS = 64
LEAST_TILES = 4  # of keys in a part, so that most loads are under way while products are made
# registers of a lane for Q and O: up to which a wave takes two times 16 rows, and up to which it holds Q
TWICE, HELD = 112, 128
UNDER_WAY = {64: 64, 32: 32}  # registers of a lane for what it loads of K or V, by the width of a wave
# blocks of one wave that the largest chip has at once, by the width of a wave: two on each of 304 compute units (MI300X,
# by shared memory), four on each of 132 multiprocessors (H200). More than a chip holds cost less than idle halves of it.
PLACES = {64: 608, 32: 528}


@dataclass(frozen=True)
class WaveTiles:
    """A block takes `rows` query rows, `fragments` times 16 in each of `waves`, and `keys` keys at a time.

    `held`: Q is in registers, else in shared memory beside K and V. `bytes` are those of an element, `splits` the parts
    of the keys that blocks share. `simt`: weights go through shared memory.
    """

    depth: int
    waves: int
    fragments: int
    keys: int
    padded: bool
    held: bool = True
    bytes: int = 2
    simt: bool = False
    splits: Dim = 1

    @property
    def rows(self) -> int:
        return self.waves * self.fragments * SIDE

    @property
    def starts(self) -> tuple[int, int, int, int]:
        """Where K, V and weights (of `simt`) begin in shared memory, in elements, and where it ends.

        Q begins at 0: that which is held lies there before the others.
        """
        q, k, v, p = (
            tile_size(count, depth, self.bytes, self.padded)
            for count, depth in (
                (self.rows, self.depth),
                (self.keys, self.depth),
                (self.depth, self.keys),
                (self.rows, self.keys),
            )
        )
        first = 0 if self.held else q
        end = first + k + v
        return first, first + k, end, max(end + (p if self.simt else 0), q)


def choose_wave_tiles(attention: Attention, unit: Unit, wave: int) -> WaveTiles:
    """Tiles for waves of `wave` lanes that multiply by `unit`.

    Few query rows are cut smaller, and their keys into parts that fill the GPU.
    """
    p = attention.product
    narrow = all(isinstance(w, int) and w <= NARROW for w in (attention.operands[0].k, p.n))
    depth = NARROW if narrow else attention.depth
    tiles = _of_multiply_adds(depth) if isinstance(unit, MultiplyAdd) else _of_matrices(depth, p.dtype, unit, wave)
    room, line = 4 * UNDER_WAY[wave] * wave, depth * tiles.bytes
    least = -(-unit.group * line // room)
    while isinstance(p.m, int) and tiles.waves > least and tiles.rows >= 2 * p.m:
        tiles = replace(tiles, fragments=1, waves=tiles.waves if tiles.fragments > 1 else tiles.waves // 2)
    while tiles.keys > unit.group and tiles.keys * line > room * tiles.waves:
        tiles = replace(tiles, keys=tiles.keys // 2)
    if attention.few:
        blocks = p.batches * dims.ceildiv(p.m, tiles.rows)
        splits = key_splits(blocks, dims.ceildiv(p.k, LEAST_TILES * tiles.keys), PLACES[wave] // tiles.waves)
        tiles = replace(tiles, splits=splits)
    return tiles


def _of_matrices(depth: int, dtype: str, unit: Unit, wave: int) -> WaveTiles:
    """As many query rows as registers hold and shared memory takes."""
    bytes = 4 if dtype == "f32" else 2
    line = depth * bytes
    copies = wave // SIDE * unit.read // unit.step  # lanes that hold the same of Q
    each = SIDE * depth // wave + copies * SIDE * line // 4 // wave
    fragments = 2 if 2 * each <= TWICE else 1
    held = fragments * each <= HELD
    most = MOST_KEYS // 2 if isinstance(unit, Interleaved) else MOST_KEYS
    keys = max(unit.group, min(most, (ROOM if held else ROOM // 2) // (2 * line)))
    tiles = WaveTiles(depth, THREADS // wave, fragments, keys, wave == 32, held, bytes)
    while tiles.waves > 1 and (tiles.rows * line > ROOM or tiles.starts[-1] * bytes > MOST_SHARED):
        tiles = replace(tiles, waves=tiles.waves // 2)
    return tiles


def _of_multiply_adds(depth: int) -> WaveTiles:
    """Of f32 in waves of 32: two times 16 rows share what is read of K and V, where O takes half of the registers."""
    fragments = 2 if depth <= 64 else 1
    tiles = WaveTiles(depth, 4 // fragments, fragments, keys=SIDE, padded=True, held=False, bytes=4, simt=True)
    while tiles.starts[-1] * tiles.bytes > MOST_SIMT and tiles.waves > 1:
        tiles = replace(tiles, waves=tiles.waves // 2)
    return tiles
