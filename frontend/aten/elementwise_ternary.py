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


# Bit for bit as eager: each has one multiply-add, rounded once, and rounds before it where eager does.
@aten("lerp.Scalar", "lerp.Tensor")
def lerp(c: Any, start: Value, end: Value, weight: Any) -> Value:
    """`start + w (end - start)` for `|w| < 0.5`, else `end - (end - start) (1 - w)`."""
    dtype = c.out_type.dtype
    a, b = (T(c, c.cast(v, opmath(dtype))) for v in (start, end))
    way = b - a
    if not isinstance(weight, Value):
        w = T(c, c.scalar(float(weight), a.dtype))
        made = a.plus_product(way, w) if abs(weight) < 0.5 else b.plus_product(-way, 1.0 - w)
        return made.to(dtype).value
    w = T(c, c.cast(weight, a.dtype))
    low, high = a.plus_product(way, w), b.plus_product(-way, 1.0 - w)
    return w.abs().lt(0.5).where(low, high).to(dtype).value


@aten("addcmul")
def addcmul(c: Any, x: Value, a: Value, b: Value, value: Any = 1) -> Value:
    """`x + value a b`: `value a` is rounded on CPUs, `a b` on GPUs."""
    dtype = c.out_type.dtype
    t, u, v = (T(c, c.cast(o, opmath(dtype))) for o in (x, a, b))
    if value != 1:
        factor = number(value, t.dtype)
        u, v = (u * v, factor) if c.on_gpu else (u * factor, v)
    return t.plus_product(u, v).to(dtype).value


@aten("addcdiv")
def addcdiv(c: Any, x: Value, a: Value, b: Value, value: Any = 1) -> Value:
    """`x + value a / b`: `value a` is rounded on CPUs, `a / b` on GPUs."""
    dtype = c.out_type.dtype
    t, u, v = (T(c, c.cast(o, opmath(dtype))) for o in (x, a, b))
    if value == 1:
        return (t + u / v).to(dtype).value
    factor = number(value, t.dtype)
    return (t.plus_product(u / v, factor) if c.on_gpu else t + u * factor / v).to(dtype).value
