"""ATen's embedding bag, and the gradient of an embedding's table."""

from __future__ import annotations

from typing import Any

from .registry import Value, aten, require
from .tensor_math import T

_MODES = ("sum", "mean", "max")


@aten("_embedding_bag_forward_only", "_embedding_bag")
def embedding_bag_forward_only(
    c: Any,
    weight: Value,
    indices: Value,
    offsets: Value,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Value | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> tuple:
    """Only the bags: the other results exist for the backward pass."""
    bags = c.op(
        "embedding_bag",
        weight,
        indices,
        offsets,
        per_sample_weights,
        mode=_MODES[mode],
        padding_idx=padding_idx,
        include_last_offset=bool(include_last_offset),
    )
    return bags, None, None, None


@aten("embedding_bag")
def embedding_bag(c: Any, *args: Any, **kwargs: Any) -> tuple:
    return embedding_bag_forward_only(c, *args, **kwargs)


@aten("embedding_bag.padding_idx")
def embedding_bag_padding(c: Any, *args: Any) -> tuple:
    *rest, padding = args
    return embedding_bag_forward_only(c, *rest, -1 if padding is None else padding)


@aten("embedding_dense_backward")
def embedding_dense_backward(
    c: Any, grad: Value, indices: Value, rows: Any, padding_idx: Any, scale_grad_by_freq: bool
) -> Value:
    """Each gradient row is added to the row of the table that it came from, in order."""
    require(not scale_grad_by_freq, "scale_grad_by_freq")
    g, at = T(c, grad), T(c, indices)
    width = g.shape[-1]
    at = at.reshape(at.numel(*range(at.rank)))
    g = g.reshape(*at.shape, width)
    if not (isinstance(padding_idx, int) and padding_idx < 0):
        g = at.eq(padding_idx).unsqueeze(1).where(0.0, g)
    table = c.scalar(0.0, g.dtype, (rows, width))
    return c.op("index_put", table, g.value, at.value, dims=(0,), accumulate=True)
