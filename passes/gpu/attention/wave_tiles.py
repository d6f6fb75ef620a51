"""How the waves of an AMD GPU cut an attention, by what fits into their registers without scratch memory.

A lane holds, for each 16 query rows of its wave, its part of Q, of a tile's scores and of the sums O:

    wave of 64, heads of 128, 32 rows      Q 32, scores 32, O 64 registers of 256 (two waves a SIMD)
    wave of 32, heads of 128, 16 rows      Q 32 (64 on gfx11, where both halves hold all), scores 32, O 64 of 256

Keys come 64 at a time, but 32 on gfx11, whose operands take twice the registers: for heads of 128, K and V take 32 kB of shared memory, so that two blocks share a compute unit.
Waves of 32 have no registers to spare for addresses and take `padded` tiles, of which 128 kB hold as many blocks as the
registers.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..matmul.matrix_units import SIDE, Unit
from .problem import Attention

DEPTHS = (32, 64, 128)  # widths of heads that kernels are made for; others are filled up with zeros
FRAGMENTS = {64: 2, 32: 1}  # times 16 query rows of a wave, by its width
THREADS = 256


@dataclass(frozen=True)
class WaveTiles:
    """A block takes `rows` query rows, `fragments` times 16 in each of `waves`, and `keys` keys at a time."""

    depth: int
    waves: int
    fragments: int
    keys: int
    padded: bool

    @property
    def rows(self) -> int:
        return self.waves * self.fragments * SIDE


def choose_wave_tiles(attention: Attention, unit: Unit, wave: int) -> WaveTiles | None:
    """Tiles for waves of `wave` lanes that multiply by `unit`; None for heads that are too wide. Few query rows are cut smaller."""
    widths, queries = (attention.operands[0].k, attention.product.n), attention.product.m
    depth = next((d for d in DEPTHS if all(isinstance(w, int) and w <= d for w in widths)), None)
    if depth is None:
        return None
    waves, fragments = THREADS // wave, FRAGMENTS[wave]
    while isinstance(queries, int) and waves > 1 and waves * fragments * SIDE >= 2 * queries:
        waves, fragments = (waves, 1) if fragments > 1 else (waves // 2, 1)
    return WaveTiles(depth, waves, fragments, keys=32 if unit.read == unit.step else 64, padded=wave == 32)
