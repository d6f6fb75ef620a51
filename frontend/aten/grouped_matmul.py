"""Products in groups of rows: ATen's `_grouped_mm`, and transformers' op for the element types that Inductor's lacks."""

from __future__ import annotations

from typing import Any

from .registry import Value, aten, overloads, require
from .tensor_math import T


@aten("_grouped_mm")
def grouped_mm(
    c: Any, a: Value, b: Value, ends: Value | None = None, bias: Value | None = None, out_dtype: str | None = None
) -> Value:
    """`[S, K] @ [G, K, N]` by groups of rows; of two batches of matrices, the product of each pair.

    Eager leaves rows past the last end undefined; ours are 0.
    """
    x, w = T(c, a), T(c, b)
    require(bias is None and out_dtype in (None, x.dtype), "a bias or another type of the result")
    if ends is None:
        return x.matmul(w).value
    require((x.rank, w.rank) == (2, 3), "groups of columns or along the sums")
    return c.op("grouped_matmul", a, b, ends)


@overloads("transformers.grouped_mm_fallback.default")
def grouped_mm_fallback(c: Any, x: Value, w: Value, ends: Value) -> Value:
    """The same, with 0 in rows past the last end."""
    return c.op("grouped_matmul", x, w, ends)
