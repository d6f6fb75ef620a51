"""ATen's views: reshapes, permutations, slices and windows. Eager's result shape (`c.out_type`) gives symbolic sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...dialects.dims import Dim, product
from ...dialects.op import normalize_dim
from ...dialects.strides import row_major
from .positions import from_start, slice_start
from .registry import Value, aten, require
from .tensor_math import T


@aten("view", "_unsafe_view", "reshape", "view_copy", "_reshape_copy", "_reshape_alias", "flatten.using_ints")
@aten("unsqueeze", "unsqueeze_copy", "squeeze", "squeeze.dim", "squeeze.dims", "squeeze_copy", "squeeze_copy.dim")
@aten("squeeze_copy.dims", "unflatten.int", "view_as", "reshape_as", "atleast_1d", "atleast_2d", "ravel")
def reshape(c: Any, x: Value, *_: Any, **__: Any) -> Value:
    """Every op that only regroups sizes: eager's shape says all."""
    return T(c, x).reshape(*c.out_type.shape).value


@aten("permute", "permute_copy")
def permute(c: Any, x: Value, dims: Sequence[int]) -> Value:
    t = T(c, x)
    return t.permute(*(normalize_dim(d, t.rank) for d in dims)).value


@aten("transpose.int", "transpose_copy.int", "swapaxes", "swapdims")
def transpose(c: Any, x: Value, a: int, b: int) -> Value:
    t = T(c, x)
    order = list(range(t.rank))
    if order:
        a, b = normalize_dim(a, t.rank), normalize_dim(b, t.rank)
        order[a], order[b] = order[b], order[a]
    return t.permute(*order).value


@aten("t", "t_copy", "numpy_T", "mT", "adjoint")
def t_(c: Any, x: Value) -> Value:
    t = T(c, x)
    return t.transpose().value if t.rank >= 2 else x


@aten("movedim.intlist", "movedim.int")
def movedim(c: Any, x: Value, source: Any, target: Any) -> Value:
    t = T(c, x)
    sources, targets = ([s] if isinstance(s, int) else list(s) for s in (source, target))
    moved = {normalize_dim(b, t.rank): normalize_dim(a, t.rank) for a, b in zip(sources, targets)}
    rest = iter(d for d in range(t.rank) if d not in moved.values())
    return t.permute(*(moved[i] if i in moved else next(rest) for i in range(t.rank))).value


@aten("expand", "expand_copy", "expand_as", "broadcast_to")
def expand(c: Any, x: Value, *_: Any, **__: Any) -> Value:
    return T(c, x).expand(*c.out_type.shape).value


# -- slices -----------------------------------------------------------------------------------------------------
@aten("slice.Tensor", "slice_copy.Tensor")
def slice_(c: Any, x: Value, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Value:
    t = T(c, x)
    d = normalize_dim(dim, t.rank)
    require(isinstance(step, int), "a slice with a symbolic step")
    size = c.out_type.shape[d]
    if size == t.shape[d] and step == 1:
        return x
    return t.slice(d, slice_start(c, start, end, t.shape[d], size, step), size, step).value


@aten("select.int", "select_copy.int")
def select(c: Any, x: Value, dim: int, index: Any) -> Value:
    t = T(c, x)
    d = normalize_dim(dim, t.rank)
    return t.slice(d, from_start(c, index, t.shape[d]), 1).reshape(*c.out_type.shape).value


@aten("narrow", "narrow_copy")
def narrow(c: Any, x: Value, dim: int, start: Any, length: Any) -> Value:
    t = T(c, x)
    d = normalize_dim(dim, t.rank)
    require(not isinstance(start, Value), "narrow from a tensor")
    return t.slice(d, from_start(c, start, t.shape[d]), c.out_type.shape[d]).value


@aten("split.Tensor", "split_with_sizes", "split.sizes", "chunk", "unsafe_split.Tensor", "unsafe_split_with_sizes")
@aten("split_copy.Tensor", "split_with_sizes_copy", "unsafe_chunk", "tensor_split.sections", "tensor_split.indices")
def split(c: Any, x: Value, sections: Any, dim: int = 0) -> tuple:
    """Consecutive pieces along `dim`; eager's shapes give their sizes."""
    t = T(c, x)
    d = normalize_dim(dim, t.rank)
    pieces, at = [], 0
    for type in c.out_type:
        pieces.append(t.slice(d, at, type.shape[d]).value)
        at = at + type.shape[d]
    return tuple(pieces)


@aten("unbind.int", "unbind_copy.int")
def unbind(c: Any, x: Value, dim: int = 0) -> tuple:
    t = T(c, x)
    d = normalize_dim(dim, t.rank)
    shape = t.shape[:d] + t.shape[d + 1 :]
    return tuple(t.slice(d, i, 1).reshape(*shape).value for i in range(len(c.out_type)))


# -- strided windows --------------------------------------------------------------------------------------------
def _flat(t: T) -> T:
    return t.reshape(product(t.shape))


@aten("as_strided", "as_strided_copy")
def as_strided(c: Any, x: Value, size: Sequence[Dim], stride: Sequence[Dim], offset: Dim | None = None) -> Value:
    """`x` has its dims as they are in memory (the Context sees to that)."""
    return _flat(T(c, x)).op("as_strided", shape=tuple(size), strides=tuple(stride), offset=(offset or 0,)).value


@aten("diagonal", "diagonal_copy", "linalg_diagonal")
def diagonal(c: Any, x: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    """The elements with `i2 = i1 + offset`, along a new last dim."""
    t = T(c, x)
    a, b = normalize_dim(dim1, t.rank), normalize_dim(dim2, t.rank)
    strides = row_major(t.shape)
    rest = [i for i in range(t.rank) if i not in (a, b)]
    first = strides[b] * offset if offset >= 0 else strides[a] * -offset
    if c.out_type.shape[-1] == 0:
        return c.scalar(0, t.dtype, c.out_type.shape)
    made = _flat(t).op(
        "as_strided",
        shape=c.out_type.shape,
        strides=(*(strides[i] for i in rest), strides[a] + strides[b]),
        offset=(first,),
    )
    return made.value


@aten("unfold", "unfold_copy")
def unfold(c: Any, x: Value, dim: int, size: int, step: int) -> Value:
    """Windows of `size` along `dim`, `step` apart, as a new last dim."""
    t = T(c, x)
    if t.rank == 0:
        return t.reshape(*c.out_type.shape).value
    d = normalize_dim(dim, t.rank)
    strides = row_major(t.shape)
    windows = tuple(s * step if i == d else s for i, s in enumerate(strides))
    if 0 in c.out_type.shape:
        return c.scalar(0, t.dtype, c.out_type.shape)
    return _flat(t).op("as_strided", shape=c.out_type.shape, strides=(*windows, strides[d]), offset=(0,)).value


# -- rearrangements ---------------------------------------------------------------------------------------------
@aten("flip", "fliplr", "flipud")
def flip(c: Any, x: Value, dims: Sequence[int] = ()) -> Value:
    t = T(c, x)
    return t.op("flip", dims=tuple(sorted(normalize_dim(d, t.rank) for d in dims))).value if t.rank else x


@aten("roll")
def roll(c: Any, x: Value, shifts: Sequence[Dim], dims: Sequence[int] = ()) -> Value:
    t = T(c, x)
    if not dims:
        return _rolled(_flat(t), 0, shifts[0]).reshape(*t.shape).value
    for shift, dim in zip(shifts, dims):
        t = _rolled(t, normalize_dim(dim, t.rank), shift)
    return t.value


def _rolled(t: T, d: int, shift: Dim) -> T:
    size = t.shape[d]
    require(isinstance(size, int) and isinstance(shift, int), "a roll of a symbolic size")
    first = -shift % size if size else 0
    if first == 0:
        return t
    parts = (t.slice(d, first, size - first), t.slice(d, 0, first))
    return T(t.c, t.c.op("concat", *(p.value for p in parts), dim=d))


@aten("repeat", "tile")
def repeat(c: Any, x: Value, repeats: Sequence[Dim]) -> Value:
    """`x` laid side by side: each size `n` becomes `1 x n`, is expanded to `r x n`, and the two are joined."""
    t = T(c, x)
    rank = max(len(repeats), t.rank)
    counts = [1] * (rank - len(repeats)) + list(repeats)
    sizes = [1] * (rank - t.rank) + list(t.shape)
    unit = [d for n in sizes for d in (1, n)]
    wide = [d for r, n in zip(counts, sizes) for d in (r, n)]
    return t.reshape(*unit).expand(*wide).reshape(*c.out_type.shape).value


@aten("pixel_shuffle")
def pixel_shuffle(c: Any, x: Value, factor: int) -> Value:
    t = T(c, x)
    *batch, channels, high, wide = t.shape
    n = len(batch)
    parts = t.reshape(*batch, channels // (factor * factor), factor, factor, high, wide)
    order = (*range(n), n, n + 3, n + 1, n + 4, n + 2)
    return parts.permute(*order).reshape(*c.out_type.shape).value


@aten("pixel_unshuffle")
def pixel_unshuffle(c: Any, x: Value, factor: int) -> Value:
    t = T(c, x)
    *batch, channels, high, wide = t.shape
    n = len(batch)
    parts = t.reshape(*batch, channels, high // factor, factor, wide // factor, factor)
    order = (*range(n), n, n + 2, n + 4, n + 1, n + 3)
    return parts.permute(*order).reshape(*c.out_type.shape).value


@aten("channel_shuffle", "native_channel_shuffle")
def channel_shuffle(c: Any, x: Value, groups: int) -> Value:
    t = T(c, x)
    batch, channels, *rest = t.shape
    parts = t.reshape(batch, groups, channels // groups, *rest)
    return parts.permute(0, 2, 1, *range(3, parts.rank)).reshape(*t.shape).value
