"""Elements of a tensor at places that follow from strides, masks or flat positions: read, written, added to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...dialects.op import normalize_dim
from ...dialects.strides import row_major
from .creation import literal
from .promotion import as_value, number
from .registry import Unsupported, Value, aten, require
from .tensor_math import T


def _overwritten(c: Any, x: Value, src: Value, positions: T) -> Value:
    """`x` with element `positions[i]` of its row-major order set to `src[i]`."""
    t = T(c, x)
    flat = t.reshape(t.numel(*range(t.rank)))
    s = T(c, src).to(t.dtype)
    s = s.reshape(s.numel(*range(s.rank)))
    made = c.op("index_put", flat.value, s.value, positions.value, dims=(0,), accumulate=False)
    return T(c, made).reshape(*t.shape).value


def _strided_positions(c: Any, shape: Sequence[Any], strides: Sequence[Any], offset: Any) -> T:
    require(all(isinstance(v, int) for v in (*shape, *strides, offset)), "a strided write of symbolic size")
    at = [offset]
    for n, stride in zip(shape, strides):
        at = [a + i * stride for a in at for i in range(n)]
    require(len(at) <= 1 << 16, "a strided write of many elements")
    return T(c, literal(c, at, "i64", (len(at),)))


@aten("diagonal_scatter")
def diagonal_scatter(c: Any, x: Value, src: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    t = T(c, x)
    a, b = normalize_dim(dim1, t.rank), normalize_dim(dim2, t.rank)
    strides = row_major(t.shape)
    rest = [strides[i] for i in range(t.rank) if i not in (a, b)]
    first = strides[b] * offset if offset >= 0 else strides[a] * -offset
    shape = c.type(src).shape
    if 0 in shape:
        return x
    return _overwritten(c, x, src, _strided_positions(c, shape, (*rest, strides[a] + strides[b]), first))


@aten("as_strided_scatter")
def as_strided_scatter(
    c: Any, x: Value, src: Value, size: Sequence[int], stride: Sequence[int], offset: int | None = None
) -> Value:
    """`x` and the result have their dims as they are in memory (the Context sees to that)."""
    return _overwritten(c, x, src, _strided_positions(c, size, stride, offset or 0))


@aten("put")
def put(c: Any, x: Value, index: Value, src: Value, accumulate: bool = False) -> Value:
    t, i, s = T(c, x), T(c, index), T(c, src)
    flat, at, values = (v.reshape(v.numel(*range(v.rank))) for v in (t, i, s))
    made = c.op("index_put", flat.value, values.value, at.value, dims=(0,), accumulate=accumulate)
    return T(c, made).reshape(*t.shape).value


@aten("_unsafe_masked_index")
def masked_index(c: Any, x: Value, mask: Value, indices: Sequence[Value | None], fill: Any) -> Value:
    """`x[indices]` where `mask`, else `fill`; indices under a false mask may lie anywhere."""
    t = T(c, x)
    given = _clamped(t, indices)
    if t.numel(*range(t.rank)) == 0:
        return c.scalar(number(fill, t.dtype), t.dtype, c.out_type.shape)
    read = t.op("index", *given.values(), dims=tuple(given), wrap=False, checked=False)
    return T(c, mask).where(read, number(fill, t.dtype)).value


@aten("_unsafe_masked_index_put_accumulate")
def masked_index_put(c: Any, x: Value, mask: Value, indices: Sequence[Value | None], values: Value) -> Value:
    """Adds `values` where `mask` to `x[indices]`; indices under a false mask may lie anywhere."""
    t = T(c, x)
    given = _clamped(t, indices)
    if t.numel(*range(t.rank)) == 0 or not given:
        raise Unsupported("no elements, or no indices")
    added = T(c, mask).where(T(c, values), 0)
    return t.op("index_put", added, *given.values(), dims=tuple(given), accumulate=True).value


def _clamped(t: T, indices: Sequence[Value | None]) -> dict[int, T]:
    """The indices by dim, brought into their dims."""
    given = {}
    for d, index in enumerate(indices):
        if index is not None:
            i = T(t.c, index)
            given[d] = i.op("maximum", 0).op("minimum", T(t.c, as_value(t.c, t.shape[d] - 1, i.dtype)))
    return given
