"""Integers with a scale and a zero point, as exported quantised models have them: ordinary arithmetic, which fuses.

    quantize(x) = clamp(round(x / scale) + zero, low, high)        dequantize(q) = (q - zero) scale

The scale is one number, or one for each place of a dimension (`axis`).
"""

from __future__ import annotations

from typing import Any

from .registry import Value, overloads, require
from .tensor_math import T


@overloads("quantized_decomposed.quantize_per_tensor.default")
def quantize_per_tensor(c: Any, x: Value, scale: float, zero: int, low: int, high: int, dtype: str) -> Value:
    """In f32, times the reciprocal, as eager."""
    return _rounded(T(c, x).wide() * (1.0 / scale), low, high, dtype, float(zero))


@overloads("quantized_decomposed.quantize_per_channel.default")
def quantize_per_channel(
    c: Any, x: Value, scales: Value, zeros: Value, axis: int, low: int, high: int, dtype: str
) -> Value:
    """The same by channels."""
    t = T(c, x).wide()
    require(T(c, scales).dtype == "f32", "scales of another type than f32")
    inverse = _by_channel(T(c, scales), axis, t.rank).op("reciprocal")
    return _rounded(t * inverse, low, high, dtype, _by_channel(T(c, zeros), axis, t.rank).to("f32"))


def _rounded(t: T, low: int, high: int, dtype: str, zero: T | float) -> Value:
    return (t.op("round") + zero).op("clamp", low=float(low), high=float(high)).to(dtype).value


@overloads("quantized_decomposed.dequantize_per_tensor.default")
def dequantize_per_tensor(
    c: Any, q: Value, scale: float, zero: int, low: int, high: int, dtype: str, *, out_dtype: str | None = None
) -> Value:
    """In the result's type."""
    return ((T(c, q).to(out_dtype or "f32") - float(zero)) * float(scale)).value


@overloads("quantized_decomposed.dequantize_per_channel.default")
def dequantize_per_channel(
    c: Any,
    q: Value,
    scales: Value,
    zeros: Value | None,
    axis: int,
    low: int,
    high: int,
    dtype: str,
    *,
    out_dtype: str | None = None,
) -> Value:
    """In the scales' type, rounded to the result's."""
    s = _by_channel(T(c, scales), axis, T(c, q).rank)
    t = T(c, q).to(s.dtype)
    if zeros is not None:
        t = t - _by_channel(T(c, zeros), axis, t.rank).to(s.dtype)
    return (t * s).to(out_dtype or "f32").value


def _by_channel(t: T, axis: int, rank: int) -> T:
    """`[N]` as `[…, N, …]` of `rank` dims."""
    return t.reshape(*(t.shape[0] if d == axis % rank else 1 for d in range(rank)))
