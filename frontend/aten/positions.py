"""Positions in a dim as Python counts them: negative ones from the end, and those of slices cut to the dim."""

from __future__ import annotations

from typing import Any

from ...dialects.dims import Dim, dim_max
from .registry import require


def from_start(c: Any, position: Dim, size: Dim) -> Dim:
    """A position in a dim of `size`, counted from its start; Unsupported where its sign is not known."""
    if isinstance(position, int):
        return size + position if position < 0 else position
    low, high = c.bounds(position)
    if low is not None and low >= 0:
        return position
    require(high is not None and high < 0, f"a position '{position}' of unknown sign")
    return size + position


def slice_start(c: Any, start: Dim | None, end: Dim | None, size: Dim, length: Dim, step: int = 1) -> Dim:
    """The first position of a slice of `length` elements over a dim of `size`.

    Beyond the end there are no elements, wherever they begin. Before the start a slice begins at 0: `x[-512:]` of 7
    elements has all of them. Where torch has guarded that it does not (then its length says so), nothing is cut.
    """
    if start is None:
        return 0
    if isinstance(start, int) and isinstance(size, int):
        return slice(start, None).indices(size)[0]
    first = from_start(c, start, size)
    if first is start:
        return start
    whole = step == 1 and (length == -start or (isinstance(end, int) and end < 0 and length == end - start))
    return first if whole else dim_max(first, 0)
