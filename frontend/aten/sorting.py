"""ATen's sorts, searches and scans."""

from __future__ import annotations

from typing import Any

from ...dialects.dtypes import is_float
from ...dialects.op import normalize_dim
from .registry import Value, aten, require
from .tensor_math import T


@aten("sort")
def sort(c: Any, x: Value, dim: int = -1, descending: bool = False) -> tuple:
    return c.op("sort", x, dim=dim, descending=bool(descending))


@aten("sort.stable")
def sort_stable(c: Any, x: Value, *, stable: bool | None = None, dim: int = -1, descending: bool = False) -> tuple:
    return c.op("sort", x, dim=dim, descending=bool(descending))


@aten("argsort")
def argsort(c: Any, x: Value, dim: int = -1, descending: bool = False) -> Value:
    return c.op("sort", x, dim=dim, descending=bool(descending))[1]


@aten("argsort.stable")
def argsort_stable(c: Any, x: Value, *, stable: bool, dim: int = -1, descending: bool = False) -> Value:
    return c.op("sort", x, dim=dim, descending=bool(descending))[1]


@aten("msort")
def msort(c: Any, x: Value) -> Value:
    return c.op("sort", x, dim=0)[0]


@aten("topk")
def topk(c: Any, x: Value, k: Any, dim: int = -1, largest: bool = True, sorted: bool = True) -> tuple:
    require(isinstance(k, int), "a symbolic number of elements")
    require(c.type(x).dtype != "bool", "bool, which eager refuses")
    return c.op("topk", x, k=k, dim=dim, largest=bool(largest), sorted=True)


@aten("searchsorted.Tensor")
def searchsorted(
    c: Any,
    edges: Value,
    values: Value,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Value | None = None,
) -> Value:
    if sorter is not None:
        edges = c.op("gather", edges, sorter, dim=len(c.type(edges).shape) - 1)
    (edges, values), _ = c.promote(edges, values)
    found = c.op("searchsorted", edges, values, right=bool(right) or side == "right")
    return c.cast(found, "i32" if out_int32 else "i64")


@aten("bucketize.Tensor")
def bucketize(c: Any, values: Value, edges: Value, *, out_int32: bool = False, right: bool = False) -> Value:
    return searchsorted(c, edges, values, out_int32=out_int32, right=right)


@aten("cumsum")
def cumsum(c: Any, x: Value, dim: int, *, dtype: str | None = None) -> Value:
    return c.op("cumsum", c.cast(x, c.out_type.dtype), dim=dim)


@aten("cumprod")
def cumprod(c: Any, x: Value, dim: int, *, dtype: str | None = None) -> Value:
    return c.op("cumprod", c.cast(x, c.out_type.dtype), dim=dim)


@aten("logcumsumexp")
def logcumsumexp(c: Any, x: Value, dim: int) -> Value:
    return c.op("logcumsumexp", x, dim=dim)


@aten("cummax")
def cummax(c: Any, x: Value, dim: int) -> tuple:
    return _extreme(c, "cummax", x, dim)


@aten("cummin")
def cummin(c: Any, x: Value, dim: int) -> tuple:
    return _extreme(c, "cummin", x, dim)


def _extreme(c: Any, name: str, x: Value, dim: int) -> tuple:
    t = T(c, x)
    values, indices = (t.to("u8") if t.dtype == "bool" else t).op(name, dim=dim)
    return values.to(t.dtype).value, indices.value


@aten("kthvalue")
def kthvalue(c: Any, x: Value, k: Any, dim: int = -1, keepdim: bool = False) -> tuple:
    """The `k`-th smallest value; which of several equal ones eager points at is not ours to know."""
    t = T(c, x)
    if not t.rank:
        return x, None
    return _ranked(t, normalize_dim(dim, t.rank), k - 1, keepdim).value, None


@aten("median")
def median(c: Any, x: Value) -> Value:
    t = T(c, x)
    return _median(t.reshape(t.numel(*range(t.rank))), 0, False)


@aten("median.dim")
def median_dim(c: Any, x: Value, dim: int, keepdim: bool = False) -> tuple:
    t = T(c, x)
    return (_median(t, normalize_dim(dim, t.rank), keepdim) if t.rank else x), None


def _median(t: T, dim: int, keepdim: bool) -> Value:
    """The lower median; NaN if there is one, and NaNs are sorted last."""
    size = t.shape[dim]
    require(isinstance(size, int) and size > 0, "a median of a symbolic number of elements, or of none")
    ordered = t.op("sort", dim=dim)[0]
    middle, last = (ordered.slice(dim, at, 1) for at in ((size - 1) // 2, size - 1))
    if is_float(t.dtype):
        middle = last.ne(last).where(last, middle)
    return _without(middle, dim, keepdim).value


@aten("nanmedian")
def nanmedian(c: Any, x: Value) -> Value:
    t = T(c, x)
    return _nanmedian(t.reshape(t.numel(*range(t.rank))), 0, False)


@aten("nanmedian.dim")
def nanmedian_dim(c: Any, x: Value, dim: int, keepdim: bool = False) -> tuple:
    t = T(c, x)
    return (_nanmedian(t, normalize_dim(dim, t.rank), keepdim) if t.rank else x), None


def _nanmedian(t: T, dim: int, keepdim: bool) -> Value:
    """The lower median of what is not NaN: NaNs are sorted last, and the middle is that of the rest."""
    if not is_float(t.dtype):
        return _median(t, dim, keepdim)
    require(t.shape[dim] != 0, "a median of no elements")
    count = t.op("isnan").op("logical_not").op("sum", dims=(dim,), keepdim=True, dtype="i64")
    middle = (count - 1).op("maximum", 0).op("div", 2, rounding="floor")
    return _without(t.op("sort", dim=dim)[0].op("gather", middle, dim=dim), dim, keepdim).value


def _ranked(t: T, dim: int, at: Any, keepdim: bool) -> T:
    return _without(t.op("sort", dim=dim)[0].slice(dim, at, 1), dim, keepdim)


def _without(t: T, dim: int, keepdim: bool) -> T:
    return t if keepdim else t.reshape(*t.shape[:dim], *t.shape[dim + 1 :])
