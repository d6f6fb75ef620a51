"""ATen's small tensor algebra: outer and cross products, block matrices, rotations, renormalisation, windows of images."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...dialects.op import normalize_dim
from ...dialects.strides import row_major
from .creation import literal
from .promotion import as_value, number, result_type
from .registry import Unsupported, Value, aten, require
from .tensor_math import T


@aten("addr")
def addr(c: Any, x: Value, a: Value, b: Value, beta: Any = 1, alpha: Any = 1) -> Value:
    """`beta x + alpha (a outer b)`; with `beta` 0, NaN in `x` does not count."""
    dtype = c.out_type.dtype
    t, u, v = (T(c, c.cast(o, dtype)) for o in (x, a, b))  # eager rounds every step of halves
    outer = (u if alpha == 1 else u * number(alpha, dtype)).unsqueeze(-1) * v
    if beta == 0:
        return outer.value
    return ((t if beta == 1 else t * number(beta, dtype)) + outer).value


@aten("linalg_cross", "cross")
def cross(c: Any, x: Value, y: Value, dim: int | None = -1) -> Value:
    """The cross product of vectors along `dim`, of size 3."""
    dtype, shape = c.out_type.dtype, c.out_type.shape
    a, b = (T(c, as_value(c, v, dtype)).expand(*shape) for v in (x, y))
    d = normalize_dim(-1 if dim is None else dim, a.rank)
    if dim is None:
        d = shape.index(3)
    p, q = ([v.slice(d, i, 1) for i in range(3)] for v in (a, b))
    parts = [p[i] * q[j] - p[j] * q[i] for i, j in ((1, 2), (2, 0), (0, 1))]
    return c.op("concat", *(v.value for v in parts), dim=d)


@aten("block_diag")
def block_diag(c: Any, xs: Sequence[Value]) -> Value:
    """Matrices along the diagonal, zeros elsewhere."""
    dtype = result_type(c, xs)
    rows, columns = c.out_type.shape
    at, made = [0, 0], []
    for x in xs:
        t = T(c, c.cast(x, dtype))
        t = t.reshape(*[1] * (2 - t.rank), *t.shape)
        after = columns - at[1] - t.shape[1]
        made.append(t.op("pad", low=(0, at[1]), high=(0, after), value=number(0, dtype), mode="constant"))
        at = [at[0] + t.shape[0], at[1] + t.shape[1]]
    return c.op("concat", *(m.value for m in made), dim=0)


@aten("rot90")
def rot90(c: Any, x: Value, k: int = 1, dims: Sequence[int] = (0, 1)) -> Value:
    """`k` quarter turns from `dims[0]` towards `dims[1]`."""
    t = T(c, x)
    a, b = (normalize_dim(d, t.rank) for d in dims)
    order = list(range(t.rank))
    order[a], order[b] = order[b], order[a]
    match k % 4:
        case 0:
            return x
        case 1:
            return t.op("flip", dims=(b,)).permute(*order).value
        case 2:
            return t.op("flip", dims=tuple(sorted((a, b)))).value
    return t.permute(*order).op("flip", dims=(b,)).value


@aten("renorm")
def renorm(c: Any, x: Value, p: float, dim: int, limit: float) -> Value:
    """Slices along `dim` whose p-norm exceeds `limit` are scaled down to it."""
    t = T(c, x)
    wide = t.wide()
    d = normalize_dim(dim, t.rank)
    others = tuple(i for i in range(t.rank) if i != d)
    if p == math.inf:
        norm = wide.abs().op("amax", dims=others, keepdim=True)
    elif p == 2:
        norm = (wide * wide).sum(others, True).op("sqrt")
    elif p == 1:
        norm = wide.abs().sum(others, True)
    else:
        norm = wide.abs().op("pow", float(p)).sum(others, True).op("pow", 1.0 / p)
    factor = norm.gt(float(limit)).where(float(limit) / (norm + 1e-7), norm.like(1.0))
    return (wide * factor).to(t.dtype).value


# -- writing a part ---------------------------------------------------------------------------------------------
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


@aten("_trilinear")
def trilinear(
    c: Any,
    a: Value,
    b: Value,
    d: Value,
    expand_a: Sequence[int],
    expand_b: Sequence[int],
    expand_d: Sequence[int],
    summed: Sequence[int],
    unroll: int = 1,
) -> Value:
    """`sum(a * b * d)` along `summed`, once each operand has a dim of 1 at every position of its `expand`."""
    made = []
    for value, places in ((a, expand_a), (b, expand_b), (d, expand_d)):
        t = T(c, value)
        for place in places:
            t = t.unsqueeze(place)
        made.append(t)
    return (made[0] * made[1] * made[2]).sum(tuple(summed)).value


# -- windows ----------------------------------------------------------------------------------------------------
@aten("im2col")
def im2col(
    c: Any,
    x: Value,
    kernel: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Value:
    """Every window of an image as a column: [B, C * kh * kw, windows]."""
    t = T(c, x)
    if any(padding):
        pads = (0,) * (t.rank - 2) + tuple(padding)
        t = t.op("pad", low=pads, high=pads, value=number(0, t.dtype), mode="constant")
    *lead, high, wide = t.shape
    require(isinstance(high, int) and isinstance(wide, int), "windows of a symbolic size")
    counts = [(n - d * (k - 1) - 1) // s + 1 for n, k, d, s in zip((high, wide), kernel, dilation, stride)]
    strides = row_major(t.shape)
    made = t.reshape(t.numel(*range(t.rank))).op(
        "as_strided",
        shape=(*lead, *kernel, *counts),
        strides=(
            *strides[:-2],
            *(s * d for s, d in zip(strides[-2:], dilation)),
            *(s * n for s, n in zip(strides[-2:], stride)),
        ),
        offset=(0,),
    )
    return made.reshape(*c.out_type.shape).value
