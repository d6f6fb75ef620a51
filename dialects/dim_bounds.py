"""Bounds of symbolic integers, when the ranges of their symbols are known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # dims.py imports this file
    from .dims import Dim


def bounds(dim: Dim, ranges: Mapping[str, tuple[int | None, int | None]]) -> tuple[int | None, int | None]:
    """Inclusive lower and upper bound of `dim` when symbol `n` lies in `ranges[n]` (None: unbounded)."""
    if isinstance(dim, int):
        return dim, dim
    low: int | None = 0
    high: int | None = 0
    for monomial, c in dim.terms.items():
        lo, hi = 1, 1
        for atom, power in monomial:
            a_lo, a_hi = _atom_bounds(atom, ranges)
            if a_lo is None or a_lo < 0:
                return None, None
            for _ in range(power):
                lo = lo * a_lo
                hi = None if hi is None or a_hi is None else hi * a_hi
        t_lo, t_hi = (c * lo, None if hi is None else c * hi) if c > 0 else (None if hi is None else c * hi, c * lo)
        low = None if low is None or t_lo is None else low + t_lo
        high = None if high is None or t_hi is None else high + t_hi
    return low, high


def _atom_bounds(atom: object, ranges: Mapping[str, tuple[int | None, int | None]]) -> tuple[int | None, int | None]:
    if isinstance(atom, str):
        return ranges.get(atom, (None, None))
    function, a, b = atom  # type: ignore[misc]
    a_lo, a_hi = bounds(a, ranges)
    b_lo, b_hi = bounds(b, ranges)
    if function == "mod":
        return 0, None if b_hi is None else b_hi - 1
    if function == "floordiv" and b_lo is not None and b_lo > 0 and a_lo is not None and a_lo >= 0:
        return (0 if b_hi is None else a_lo // b_hi), None if a_hi is None else a_hi // b_lo
    if function == "max" and a_lo is not None and b_lo is not None:
        return max(a_lo, b_lo), None if a_hi is None or b_hi is None else max(a_hi, b_hi)
    if function == "min" and a_lo is not None and b_lo is not None:
        known = [h for h in (a_hi, b_hi) if h is not None]
        return min(a_lo, b_lo), min(known) if known else None
    return None, None


def within(a: Dim, b: Dim, ranges: Mapping[str, tuple[int, int | None]] | None) -> bool:
    """True if `0 <= a < b` for certain."""
    if ranges is None:
        return False
    low, high = bounds(a, ranges)
    if low is None or low < 0:
        return False
    if isinstance(b, int):
        return high is not None and high < b
    b_low, _ = bounds(b, ranges)
    return high is not None and b_low is not None and high < b_low
