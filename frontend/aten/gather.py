"""ATen's reads at computed indices, concatenations and padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...dialects.dims import Dim, ceildiv, product
from ...dialects.op import normalize_dim
from .promotion import number, result_type
from .registry import Value, aten, require
from .tensor_math import T


@aten("gather")
def gather(c: Any, x: Value, dim: int, index: Value, sparse_grad: bool = False) -> Value:
    t, i = T(c, x), T(c, index)
    if i.numel(*range(i.rank)) == 0:
        return c.scalar(number(0, t.dtype), t.dtype, i.shape)
    if t.rank == i.rank:
        return c.op("gather", x, index, dim=dim)
    # eager takes a 0-d tensor as one of size 1
    one = [v.reshape(1) if v.rank == 0 else v for v in (t, i)]
    return one[0].op("gather", one[1], dim=dim).reshape(*i.shape).value


@aten("take_along_dim")
def take_along_dim(c: Any, x: Value, index: Value, dim: int | None = None) -> Value:
    require(dim is not None and c.type(x).shape[: c.type(x).rank] == c.type(index).shape, "a broadcast take_along_dim")
    return c.op("gather", x, index, dim=dim)


@aten("index_select")
def index_select(c: Any, x: Value, dim: int, index: Value) -> Value:
    t, i = T(c, x), T(c, index)
    i = i.reshape(1) if i.rank == 0 else i
    if t.rank == 0:
        return t.reshape(1).op("index", i, dims=(0,), wrap=False).reshape(*c.out_type.shape).value
    return t.op("index", i, dims=(normalize_dim(dim, t.rank),), wrap=False).value


@aten("index.Tensor", "_unsafe_index.Tensor")
def index(c: Any, x: Value, indices: Sequence[Value | None]) -> Value:
    given = [(d, i) for d, i in enumerate(indices) if i is not None]
    if not given:
        return x
    for _, i in given:
        require(c.type(i).dtype not in ("bool", "u8"), "an index by a mask, whose size depends on its values")
    return c.op("index", x, *(i for _, i in given), dims=tuple(d for d, _ in given), wrap=True)


@aten("take")
def take(c: Any, x: Value, at: Value) -> Value:
    t = T(c, x)
    return t.reshape(t.numel(*range(t.rank))).op("index", T(c, at), dims=(0,), wrap=True).value


@aten("embedding")
def embedding(c: Any, weight: Value, index: Value, *_: Any, **__: Any) -> Value:
    return c.op("embedding", weight, index)


# -- side by side -----------------------------------------------------------------------------------------------
@aten("cat", "concat", "concatenate")
def cat(c: Any, xs: Sequence[Value], dim: int = 0) -> Value:
    dtype = result_type(c, xs)
    kept = [x for x in xs if c.type(x).shape != (0,) or len(c.out_type.shape) == 1]  # legacy: skips empty 1-d tensors
    return c.op("concat", *(c.cast(x, dtype) for x in kept), dim=dim)


@aten("stack")
def stack(c: Any, xs: Sequence[Value], dim: int = 0) -> Value:
    dtype = result_type(c, xs)
    d = normalize_dim(dim, c.type(xs[0]).rank + 1)
    parts = [T(c, c.cast(x, dtype)).unsqueeze(d) for x in xs]
    return c.op("concat", *(p.value for p in parts), dim=d)


@aten("_chunk_cat")
def chunk_cat(c: Any, xs: Sequence[Value], dim: int, chunks: int) -> Value:
    """Every tensor padded to `chunks` equal chunks along `dim`, the rest of it flattened, side by side."""
    d = normalize_dim(dim, c.type(xs[0]).rank)
    parts = []
    for x in xs:
        t = T(c, x)
        size, lead = ceildiv(t.shape[d], chunks), t.shape[:d]
        high = tuple(size * chunks - n if k == d else 0 for k, n in enumerate(t.shape))
        t = t.op("pad", low=(0,) * t.rank, high=high, value=number(0, t.dtype), mode="constant")
        parts.append(t.reshape(*lead, chunks, size * product(t.shape[d + 1 :])))
    return c.op("concat", *(p.value for p in parts), dim=d + 1)


# -- padding ----------------------------------------------------------------------------------------------------
@aten("constant_pad_nd")
def constant_pad(c: Any, x: Value, pads: Sequence[Dim], value: Any = 0) -> Value:
    return _pad(T(c, x), pads, "constant", value).value


@aten("reflection_pad1d", "reflection_pad2d", "reflection_pad3d")
def reflection_pad(c: Any, x: Value, pads: Sequence[Dim]) -> Value:
    return _pad(T(c, x), pads, "reflect").value


@aten("replication_pad1d", "replication_pad2d", "replication_pad3d")
def replication_pad(c: Any, x: Value, pads: Sequence[Dim]) -> Value:
    return _pad(T(c, x), pads, "replicate").value


@aten("_pad_circular")
def circular_pad(c: Any, x: Value, pads: Sequence[Dim]) -> Value:
    return _pad(T(c, x), pads, "circular").value


@aten("pad", "_pad_enum")
def pad(c: Any, x: Value, pads: Sequence[Dim], mode: Any = "constant", value: Any = None) -> Value:
    names = ("constant", "reflect", "replicate", "circular")
    name = mode if isinstance(mode, str) else names[mode]
    return _pad(T(c, x), pads, name, 0 if value is None else value).value


def _pad(t: T, pads: Sequence[Dim], mode: str, value: Any = 0) -> T:
    """torch's pads: (before, after) of the last dim first; a negative amount takes elements away.

    It does so before a circular padding and after all others, whose new elements come from those taken away too.
    """
    pairs = [(0, 0)] * (t.rank - len(pads) // 2) + [(pads[i], pads[i + 1]) for i in range(len(pads) - 2, -1, -2)]
    if mode == "circular":
        t = _cut(t, pairs)
    low, high = (tuple(0 if _negative(pair[i]) else pair[i] for pair in pairs) for i in (0, 1))
    if any(p != 0 for p in (*low, *high)):
        t = t.op("pad", low=low, high=high, value=number(value, t.dtype), mode=mode)
    return t if mode == "circular" else _cut(t, pairs)


def _negative(amount: Dim) -> bool:
    return isinstance(amount, int) and amount < 0


def _cut(t: T, pairs: Sequence[tuple[Dim, Dim]]) -> T:
    """`t` without what negative amounts take away."""
    for d, pair in enumerate(pairs):
        low, high = (-p if _negative(p) else 0 for p in pair)
        if low or high:
            t = t.slice(d, low, t.shape[d] - low - high)
    return t
