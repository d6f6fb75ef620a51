"""A tile of query rows, keys or values in shared memory: as the copy engine writes it, and as products read it."""

from __future__ import annotations

from dataclasses import dataclass

from ..hopper.wgmma import ATOM_BYTES, ROW_BYTES, STEP_BYTES, SWIZZLE_128, TURNED_STEP_BYTES
from .tiles import CHUNK

STEP = 16  # elements along K of one product


@dataclass(frozen=True)
class HeadTile:
    """`rows` rows of a head, `depth` wide, as chunks of 64 columns; `turned` if products sum over rows, not columns."""

    rows: int
    depth: int
    turned: bool = False

    @property
    def bytes(self) -> int:
        return self.rows * self.depth * 2

    def descriptor_bits(self) -> int:
        """The descriptor of wgmma without its address (`wgmma.SharedTile`)."""
        leading = self.rows * ROW_BYTES >> 4 if self.turned else 1
        return SWIZZLE_128 | (ATOM_BYTES >> 4) << 32 | leading << 16

    def offset(self, row: int, step: int) -> int:
        """Bytes from the tile's start to where a product reads: rows from `row` on, at a step along K."""
        if self.turned:
            return step * TURNED_STEP_BYTES
        chunk, inside = divmod(step * STEP, CHUNK)
        return chunk * self.rows * ROW_BYTES + row * ROW_BYTES + inside // STEP * STEP_BYTES
