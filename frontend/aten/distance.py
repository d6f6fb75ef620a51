"""ATen's distances between all pairs of rows: a reduction over the row, with the differences never stored."""

from __future__ import annotations

from math import inf
from typing import Any

from ...dialects.op import broadcast
from .registry import Value, aten, require
from .tensor_math import T


@aten("_cdist_forward")
def cdist(c: Any, x: Value, y: Value, p: float, mode: int | None = None) -> Value:
    """`(sum_k |x[i, k] - y[j, k]|^p)^(1/p)` for every row `i` of `x` and `j` of `y`."""
    a, b = T(c, x), T(c, y)
    require(a.dtype == b.dtype, "operands of different types")
    batch = broadcast(a.shape[:-2], b.shape[:-2])
    a = a.expand(*batch, *a.shape[-2:]).unsqueeze(-2)
    b = b.expand(*batch, *b.shape[-2:]).unsqueeze(-3)
    d = (a - b).abs()
    if p == inf:
        require(d.shape[-1] != 0, "rows of no elements")
        return d.op("amax", dims=(d.rank - 1,), keepdim=False).value
    if p == 0:
        return d.ne(0.0).to(d.dtype).sum((-1,)).value
    if p == 1:
        return d.sum((-1,)).value
    if p == 2:
        return (d * d).sum((-1,)).op("sqrt").value
    return d.op("pow", float(p)).sum((-1,)).op("pow", 1.0 / p).value
