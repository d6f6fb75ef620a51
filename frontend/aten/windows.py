"""Windows of convolutions and poolings: one number per spatial dim."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def per_dim(value: Any, spatial: int) -> tuple[int, ...]:
    """One number per spatial dim from a number or a list of one or `spatial`."""
    values = tuple(value) if isinstance(value, (list, tuple)) else (value,)
    return values * spatial if len(values) == 1 else values


def pool_window(kernel: Any, stride: Any, padding: Any, spatial: int) -> dict[str, tuple[int, ...]]:
    """`kernel`, `stride` and `padding` of a pooling; without a stride windows touch."""
    sizes = per_dim(kernel, spatial)
    steps = sizes if stride in (None, [], ()) else per_dim(stride, spatial)
    return {"kernel": sizes, "stride": steps, "padding": per_dim(padding, spatial)}


def even_windows(spatial: Sequence[Any], output: Sequence[Any]) -> tuple[int, ...] | None:
    """The window size of each dim if adaptive windows are disjoint and equal, else None."""
    if not all(isinstance(s, int) and o > 0 and s > 0 and s % o == 0 for s, o in zip(spatial, output)):
        return None
    return tuple(s // o for s, o in zip(spatial, output))
