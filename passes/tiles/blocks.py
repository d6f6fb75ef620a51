"""How a size is cut into blocks, and blocks into register tiles; sizes may be symbolic."""

from __future__ import annotations

from ...dialects.dims import Dim


def block_size(size: Dim, limit: int, unit: int) -> int:
    """The size of equal blocks of at most `limit`, a multiple of `unit`; `limit` (rounded down) for a symbolic size."""
    most = max(1, limit // unit)
    if not isinstance(size, int):
        return most * unit
    units = max(1, -(-size // unit))
    blocks = -(-units // most)
    return -(-units // blocks) * unit


def row_cases(m: Dim, rows: int) -> list[int]:
    """The heights that tiles can have; the full one first."""
    if not isinstance(m, int):
        return [rows, *range(1, rows)]
    return ([rows] if m >= rows else []) + ([m % rows] if m % rows else [])


def divides(unit: int, size: Dim) -> bool:
    """True if `size` is known to be a multiple of `unit`."""
    return isinstance(size, int) and size % unit == 0
