"""Gradients of views, each in its place in a tensor of zeros, and of paddings, which add up what was read twice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...dialects.op import normalize_dim
from .creation import literal
from .placed_elements import diagonal_scatter
from .positions import from_start, slice_start
from .registry import Value, aten, require
from .scatter import index_add
from .tensor_math import T


@aten("select_backward")
def select_backward(c: Any, grad: Value, sizes: Sequence[Any], dim: int, index: Any) -> Value:
    d = normalize_dim(dim, len(sizes))
    return _placed(T(c, grad).unsqueeze(d), sizes, d, from_start(c, index, sizes[d]), 1)


@aten("slice_backward")
def slice_backward(c: Any, grad: Value, sizes: Sequence[Any], dim: int, start: Any, end: Any, step: int) -> Value:
    d = normalize_dim(dim, len(sizes))
    return _placed(T(c, grad), sizes, d, slice_start(c, start, end, sizes[d], c.type(grad).shape[d], step), step)


@aten("diagonal_backward")
def diagonal_backward(c: Any, grad: Value, sizes: Sequence[Any], offset: int, dim1: int, dim2: int) -> Value:
    zeros = c.scalar(0.0, c.type(grad).dtype, tuple(sizes))
    return diagonal_scatter(c, zeros, grad, offset, dim1, dim2)


@aten("replication_pad1d_backward", "replication_pad2d_backward", "replication_pad3d_backward")
def replication_pad_backward(c: Any, grad: Value, x: Value, pads: Sequence[Any]) -> Value:
    return _pad_backward(c, grad, x, pads, lambda at, size: min(max(at, 0), size - 1))


@aten("reflection_pad1d_backward", "reflection_pad2d_backward", "reflection_pad3d_backward")
def reflection_pad_backward(c: Any, grad: Value, x: Value, pads: Sequence[Any]) -> Value:
    return _pad_backward(c, grad, x, pads, lambda at, size: size - 1 - abs(size - 1 - abs(at)))


def _pad_backward(c: Any, grad: Value, x: Value, pads: Sequence[Any], source: Callable[[int, int], int]) -> Value:
    """One dim after the other; `source` says which element of a dim of `size` a padded position was read from."""
    shape = c.type(x).shape
    for i, low in enumerate(pads[::2]):
        d = len(shape) - 1 - i
        size, padded = shape[d], c.type(grad).shape[d]
        require(all(isinstance(n, int) for n in (low, size, padded)), "a padding of a symbolic size")
        places = literal(c, [source(at - low, size) for at in range(padded)], "i64", (padded,))
        kept = tuple(size if k == d else n for k, n in enumerate(c.type(grad).shape))
        grad = index_add(c, c.scalar(0.0, c.type(grad).dtype, kept), d, places, grad)
    return grad


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
