"""Gradients of `select` and `slice`: the gradient in its place in a tensor of zeros."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...dialects.op import normalize_dim
from .registry import Value, aten
from .scatter import slice_start
from .tensor_math import T


@aten("select_backward")
def select_backward(c: Any, grad: Value, sizes: Sequence[Any], dim: int, index: Any) -> Value:
    d = normalize_dim(dim, len(sizes))
    at = sizes[d] + index if isinstance(index, int) and index < 0 else index
    return _placed(T(c, grad).unsqueeze(d), sizes, d, at, 1)


@aten("slice_backward")
def slice_backward(c: Any, grad: Value, sizes: Sequence[Any], dim: int, start: Any, end: Any, step: int) -> Value:
    d = normalize_dim(dim, len(sizes))
    return _placed(T(c, grad), sizes, d, slice_start(start, sizes[d]), step)


def _placed(g: T, sizes: Sequence[Any], d: int, start: Any, step: int) -> Value:
    if step != 1:
        zeros = T(g.c, g.c.scalar(0.0, g.dtype, tuple(sizes)))
        starts = tuple(start if k == d else 0 for k in range(g.rank))
        return zeros.op(
            "slice_scatter", g, starts=starts, steps=tuple(step if k == d else 1 for k in range(g.rank))
        ).value
    low = tuple(start if k == d else 0 for k in range(g.rank))
    high = tuple(sizes[d] - start - g.shape[d] if k == d else 0 for k in range(g.rank))
    return g.op("pad", low=low, high=high, value=0, mode="constant").value
