"""ATen's pointwise ops that choose, clamp, convert and interpolate, and activations with attributes."""

from __future__ import annotations

from typing import Any

from ...dialects.op import normalize_dim
from .promotion import as_value, number, opmath, promote
from .registry import Value, aten
from .tensor_math import T


# -- choice -----------------------------------------------------------------------------------------------------
@aten("where.self", "where.ScalarOther", "where.ScalarSelf", "where.Scalar")
def where(c: Any, condition: Value, x: Any, y: Any) -> Value:
    (a, b), _ = promote(c, x, y)
    return c.op("where", c.cast(condition, "bool"), a, b)


@aten("masked_fill.Scalar", "masked_fill.Tensor")
def masked_fill(c: Any, x: Value, mask: Value, value: Any) -> Value:
    return c.op("where", mask, as_value(c, value, c.type(x).dtype), x)


@aten("clamp", "clip")
def clamp(c: Any, x: Value, low: Any = None, high: Any = None) -> Value:
    return _bounded(c, x, low, high)


@aten("clamp.Tensor", "clip.Tensor")
def clamp_tensor(c: Any, x: Value, low: Value | None = None, high: Value | None = None) -> Value:
    return _bounded(c, x, low, high)


@aten("clamp_min", "clamp_min.Tensor")
def clamp_min(c: Any, x: Value, low: Any) -> Value:
    return _bounded(c, x, low, None)


@aten("clamp_max", "clamp_max.Tensor")
def clamp_max(c: Any, x: Value, high: Any) -> Value:
    return _bounded(c, x, None, high)


def _bounded(c: Any, x: Value, low: Any, high: Any) -> Value:
    dtype = c.out_type.dtype
    x = c.cast(x, dtype)
    if all(b is None or isinstance(b, (bool, int, float)) for b in (low, high)):
        low, high = (None if b is None else number(b, dtype) for b in (low, high))
        return c.op("clamp", x, low=low, high=high)
    if low is not None:
        x = c.op("maximum", x, as_value(c, low, dtype))
    return x if high is None else c.op("minimum", x, as_value(c, high, dtype))


@aten("hardtanh")
def hardtanh(c: Any, x: Value, low: Any = -1.0, high: Any = 1.0) -> Value:
    return _bounded(c, x, low, high)


# -- conversion -------------------------------------------------------------------------------------------------
@aten("_to_copy", "to.dtype", "to.dtype_layout", "to.device")
def to_copy(c: Any, x: Value, *_: Any, **__: Any) -> Value:
    return c.cast(x, c.out_type.dtype)


@aten("clone", "alias", "detach", "lift_fresh_copy", "lift_fresh", "lift", "contiguous", "alias_copy", "detach_copy")
def same(c: Any, x: Value, **_: Any) -> Value:
    return x


# -- interpolation ----------------------------------------------------------------------------------------------
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


# -- activations ------------------------------------------------------------------------------------------------
@aten("gelu")
def gelu(c: Any, x: Value, approximate: str = "none") -> Value:
    return c.op("gelu", x, approximate=approximate)


@aten("softplus")
def softplus(c: Any, x: Value, beta: float = 1, threshold: float = 20) -> Value:
    return c.op("softplus", x, beta=float(beta), threshold=float(threshold))


@aten("elu")
def elu(c: Any, x: Value, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Value:
    return c.op("elu", x, alpha=float(alpha), scale=float(scale), input_scale=float(input_scale))


@aten("celu")
def celu(c: Any, x: Value, alpha: float = 1.0) -> Value:
    return c.op("elu", x, alpha=float(alpha), scale=1.0, input_scale=1.0 / alpha)


@aten("selu")
def selu(c: Any, x: Value) -> Value:
    return c.op("elu", x, alpha=1.6732632423543772, scale=1.0507009873554805, input_scale=1.0)


@aten("leaky_relu")
def leaky_relu(c: Any, x: Value, slope: float = 0.01) -> Value:
    return c.op("leaky_relu", x, slope=float(slope))


@aten("prelu", "_prelu_kernel")
def prelu(c: Any, x: Value, weight: Value) -> Value:
    t, w = T(c, x), T(c, weight)
    if w.rank == 1 and w.shape[0] != 1 and t.rank != 1:
        w = w.reshape(w.shape[0], *[1] * (t.rank - 2))  # one slope per channel
    elif w.rank == 1 and w.shape[0] == 1:
        w = w.reshape()
    return t.gt(0.0).where(t, w * t).value


@aten("hardshrink")
def hardshrink(c: Any, x: Value, lambd: float = 0.5) -> Value:
    return c.op("hardshrink", x, lambd=float(lambd))


@aten("softshrink")
def softshrink(c: Any, x: Value, lambd: float = 0.5) -> Value:
    return c.op("softshrink", x, lambd=float(lambd))


@aten("threshold")
def threshold(c: Any, x: Value, limit: Any, value: Any) -> Value:
    dtype = c.type(x).dtype
    return c.op("threshold", x, threshold=number(limit, dtype), value=number(value, dtype))


@aten("log_sigmoid")
def log_sigmoid(c: Any, x: Value) -> Value:
    return c.op("logsigmoid", x)


@aten("log_sigmoid_forward")
def log_sigmoid_forward(c: Any, x: Value) -> tuple:
    """The value, and `exp(-|x|)` for the gradient."""
    t = T(c, x)
    return c.op("logsigmoid", x), (-t.wide().abs()).exp().to(t.dtype).value


@aten("softsign")
def softsign(c: Any, x: Value) -> Value:
    t = T(c, x)
    return (t / (t.abs() + 1.0)).value


@aten("tanhshrink")
def tanhshrink(c: Any, x: Value) -> Value:
    return (T(c, x) - T(c, x).op("tanh")).value


@aten("glu")
def glu(c: Any, x: Value, dim: int = -1) -> Value:
    t = T(c, x)
    d = normalize_dim(dim, t.rank)
    half = c.out_type.shape[d]
    a, b = (t.slice(d, start, half).wide() for start in (0, half))
    return (a * b.op("sigmoid")).to(t.dtype).value
