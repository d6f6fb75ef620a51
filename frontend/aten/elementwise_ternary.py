"""ATen's pointwise functions of three: choices, clamps between bounds, interpolation, a product or quotient added."""

from __future__ import annotations

from typing import Any

from .promotion import as_value, number, opmath, promote
from .registry import Value, aten
from .tensor_math import T


@aten("where.self", "where.ScalarOther", "where.ScalarSelf", "where.Scalar")
def where(c: Any, condition: Value, x: Any, y: Any) -> Value:
    (a, b), _ = promote(c, x, y)
    return c.op("where", c.cast(condition, "bool"), a, b)


@aten("masked_fill.Scalar", "masked_fill.Tensor")
def masked_fill(c: Any, x: Value, mask: Value, value: Any) -> Value:
    return c.op("where", mask, as_value(c, value, c.type(x).dtype), x)


@aten("clamp", "clip")
def clamp(c: Any, x: Value, low: Any = None, high: Any = None) -> Value:
    return clamped(c, x, low, high)


@aten("clamp.Tensor", "clip.Tensor")
def clamp_tensor(c: Any, x: Value, low: Value | None = None, high: Value | None = None) -> Value:
    return clamped(c, x, low, high)


@aten("clamp_min", "clamp_min.Tensor")
def clamp_min(c: Any, x: Value, low: Any) -> Value:
    return clamped(c, x, low, None)


@aten("clamp_max", "clamp_max.Tensor")
def clamp_max(c: Any, x: Value, high: Any) -> Value:
    return clamped(c, x, None, high)


def clamped(c: Any, x: Value, low: Any, high: Any) -> Value:
    """`x` between bounds that are tensors, numbers or None."""
    dtype = c.out_type.dtype
    x = c.cast(x, dtype)
    if all(b is None or isinstance(b, (bool, int, float)) for b in (low, high)):
        low, high = (None if b is None else number(b, dtype) for b in (low, high))
        return c.op("clamp", x, low=low, high=high)
    if low is not None:
        x = c.op("maximum", x, as_value(c, low, dtype))
    return x if high is None else c.op("minimum", x, as_value(c, high, dtype))


@aten("lerp.Scalar", "lerp.Tensor")
def lerp(c: Any, start: Value, end: Value, weight: Any) -> Value:
    """`start + w (end - start)` for `|w| < 0.5`, else `end - (end - start) (1 - w)`."""
    dtype = c.out_type.dtype
    a, b = (T(c, c.cast(v, opmath(dtype))) for v in (start, end))
    if not isinstance(weight, Value):
        w = float(weight)
        made = a + (b - a) * w if abs(w) < 0.5 else b - (b - a) * (1.0 - w)
        return made.to(dtype).value
    w = T(c, c.cast(weight, opmath(dtype)))
    low, high = a + w * (b - a), b - (b - a) * (1.0 - w)
    return w.abs().lt(0.5).where(low, high).to(dtype).value


@aten("addcmul")
def addcmul(c: Any, x: Value, a: Value, b: Value, value: Any = 1) -> Value:
    return _add_third(c, "mul", x, a, b, value)


@aten("addcdiv")
def addcdiv(c: Any, x: Value, a: Value, b: Value, value: Any = 1) -> Value:
    return _add_third(c, "div", x, a, b, value)


def _add_third(c: Any, op: str, x: Value, a: Value, b: Value, value: Any) -> Value:
    dtype = c.out_type.dtype
    wide = opmath(dtype)
    t, u, v = (T(c, c.cast(o, wide)) for o in (x, a, b))
    if value != 1:
        u = u * number(value, wide)
    return (t + u.op(op, v)).to(dtype).value
