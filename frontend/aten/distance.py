"""ATen's distances between all pairs of rows: a reduction over the row, with the differences never stored."""

from __future__ import annotations

from itertools import combinations
from math import inf
from typing import Any

from ...dialects.op import broadcast
from .creation import literal
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
    return _norm(a - b, p).value


@aten("_pdist_forward")
def pdist(c: Any, x: Value, p: float = 2.0) -> Value:
    """The distance of every row of a matrix to every later row, in order."""
    t = T(c, x)
    rows = t.shape[0]
    require(isinstance(rows, int) and 1 < rows <= 256, "a symbolic number of rows, or pairs of too many")
    assert isinstance(rows, int)
    pairs = list(combinations(range(rows), 2))
    first, second = (literal(c, [pair[i] for pair in pairs], "i64", (len(pairs),)) for i in (0, 1))
    a, b = (t.op("index", T(c, i), dims=(0,), wrap=False, checked=False) for i in (first, second))
    return _norm(a - b, p).value


def _norm(difference: T, p: float) -> T:
    """`(sum_k |d[…, k]|^p)^(1/p)`."""
    d = difference.abs()
    if p == inf:
        require(d.shape[-1] != 0, "rows of no elements")
        return d.op("amax", dims=(d.rank - 1,), keepdim=False)
    if p == 0:
        return d.ne(0.0).to(d.dtype).sum((-1,))
    if p == 1:
        return d.sum((-1,))
    if p == 2:
        return (d * d).sum((-1,)).op("sqrt")
    return d.op("pow", float(p)).sum((-1,)).op("pow", 1.0 / p)
