"""ATen's activations with attributes, and those that are compositions."""

from __future__ import annotations

from typing import Any

from ...dialects.op import normalize_dim
from .elementwise_ternary import clamped
from .promotion import number
from .registry import Value, aten
from .tensor_math import T


@aten("hardtanh")
def hardtanh(c: Any, x: Value, low: Any = -1.0, high: Any = 1.0) -> Value:
    return clamped(c, x, low, high)


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
