"""ATen's sorts, searches and scans."""

from __future__ import annotations

from typing import Any

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
