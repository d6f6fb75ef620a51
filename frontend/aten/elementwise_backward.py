"""Gradients of pointwise functions, as formulas; f16 and bf16 are computed in f32 and rounded once, as in eager."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from .registry import Value, aten
from .tensor_math import T


def _formula(c: Any, fn: Callable[..., T], grad: Value, *others: Value) -> Value:
    """`fn` of the operands widened, cast back to the gradient's dtype."""
    g = T(c, grad)
    return fn(g.wide(), *(T(c, o).wide() for o in others)).to(c.out_type.dtype).value


def _zero_where(condition: T, g: T) -> T:
    return condition.where(0.0, g)


@aten("threshold_backward")
def threshold_backward(c: Any, grad: Value, x: Value, threshold: Any) -> Value:
    t = T(c, x)
    limit = float(threshold) if t.dtype[0] in "fb" else threshold
    zero = 0.0 if t.dtype[0] in "fb" else 0
    return t.le(limit).where(zero, T(c, grad)).value


@aten("sigmoid_backward")
def sigmoid_backward(c: Any, grad: Value, y: Value) -> Value:
    return _formula(c, lambda g, s: g * (1.0 - s) * s, grad, y)


@aten("tanh_backward")
def tanh_backward(c: Any, grad: Value, y: Value) -> Value:
    return _formula(c, lambda g, t: g * (1.0 - t * t), grad, y)


@aten("silu_backward")
def silu_backward(c: Any, grad: Value, x: Value) -> Value:
    def fn(g: T, v: T) -> T:
        s = v.op("sigmoid")
        return g * s * (v * (1.0 - s) + 1.0)

    return _formula(c, fn, grad, x)


@aten("mish_backward")
def mish_backward(c: Any, grad: Value, x: Value) -> Value:
    def fn(g: T, v: T) -> T:
        s = v.op("sigmoid")
        t = v.exp().op("log1p").op("tanh")
        return g * (t + v * s * (1.0 - t * t))

    return _formula(c, fn, grad, x)


@aten("gelu_backward")
def gelu_backward(c: Any, grad: Value, x: Value, approximate: str = "none") -> Value:
    def by_erf(g: T, v: T) -> T:
        cdf = ((v * math.sqrt(0.5)).op("erf") + 1.0) * 0.5
        pdf = (v * v * -0.5).exp() * (1 / math.sqrt(2 * math.pi))
        return g * (cdf + v * pdf)

    def by_tanh(g: T, v: T) -> T:
        beta, kappa = math.sqrt(2 / math.pi), 0.044715
        square = v * v
        t = ((v + square * v * kappa) * beta).op("tanh")
        left = (t + 1.0) * 0.5
        right = v * 0.5 * (1.0 - t * t) * ((square * (3 * kappa) + 1.0) * beta)
        return g * (left + right)

    return _formula(c, by_erf if approximate == "none" else by_tanh, grad, x)


@aten("elu_backward")
def elu_backward(
    c: Any, grad: Value, alpha: float, scale: float, input_scale: float, is_result: bool, x: Value
) -> Value:
    def fn(g: T, v: T) -> T:
        low = (
            g * input_scale * (v + alpha * scale)
            if is_result
            else g * (input_scale * alpha * scale) * (v * input_scale).exp()
        )
        return v.le(0.0).where(low, g * float(scale))

    return _formula(c, fn, grad, x)


@aten("leaky_relu_backward")
def leaky_relu_backward(c: Any, grad: Value, x: Value, slope: float, is_result: bool) -> Value:
    return _formula(c, lambda g, v: v.gt(0.0).where(g, g * float(slope)), grad, x)


@aten("hardtanh_backward")
def hardtanh_backward(c: Any, grad: Value, x: Value, low: float, high: float) -> Value:
    def fn(g: T, v: T) -> T:
        return _zero_where(v.le(float(low)) | v.op("ge", float(high)), g)

    return _formula(c, fn, grad, x)


@aten("hardswish_backward")
def hardswish_backward(c: Any, grad: Value, x: Value) -> Value:
    def fn(g: T, v: T) -> T:
        middle = g * (v / 3.0 + 0.5)
        return v.le(-3.0).where(0.0, v.lt(3.0).where(middle, g))

    return _formula(c, fn, grad, x)


@aten("hardsigmoid_backward")
def hardsigmoid_backward(c: Any, grad: Value, x: Value) -> Value:
    return _formula(c, lambda g, v: (v.gt(-3.0) & v.lt(3.0)).where(g * (1 / 6), 0.0), grad, x)


@aten("softplus_backward")
def softplus_backward(c: Any, grad: Value, x: Value, beta: float, threshold: float) -> Value:
    def fn(g: T, v: T) -> T:
        scaled = v * float(beta)
        z = scaled.exp()
        return scaled.gt(float(threshold)).where(g, g * z / (z + 1.0))

    return _formula(c, fn, grad, x)


@aten("log_sigmoid_backward")
def log_sigmoid_backward(c: Any, grad: Value, x: Value, buffer: Value) -> Value:
    def fn(g: T, v: T, b: T) -> T:
        ratio = b / (b + 1.0)
        return g * v.lt(0.0).where(1.0 - ratio, ratio)

    return _formula(c, fn, grad, x, buffer)


@aten("hardshrink_backward", "softshrink_backward")
def shrink_backward(c: Any, grad: Value, x: Value, lambd: float) -> Value:
    def fn(g: T, v: T) -> T:
        return _zero_where(v.op("ge", -float(lambd)) & v.le(float(lambd)), g)

    return _formula(c, fn, grad, x)


@aten("glu_backward")
def glu_backward(c: Any, grad: Value, x: Value, dim: int) -> Value:
    t, g = T(c, x), T(c, grad).wide()
    d = dim % t.rank
    half = g.shape[d]
    a, b = (t.slice(d, start, half).wide() for start in (0, half))
    s = b.op("sigmoid")
    left, right = (g * s).to(t.dtype), (g * a * s * (1.0 - s)).to(t.dtype)
    return c.op("concat", left.value, right.value, dim=d)


@aten("_prelu_kernel_backward")
def prelu_backward(c: Any, grad: Value, x: Value, weight: Value) -> tuple:
    g, v, w = T(c, grad), T(c, x), T(c, weight)
    positive = v.gt(0.0)
    return positive.where(g, w * g).value, positive.where(0.0, v * g).value


@aten("logit_backward")
def logit_backward(c: Any, grad: Value, x: Value, eps: float | None = None) -> Value:
    def fn(g: T, v: T) -> T:
        made = g / (v * (1.0 - v))
        if eps is None:
            return (v.lt(0.0) | v.gt(1.0)).where(math.nan, made)
        return (v.lt(float(eps)) | v.gt(1.0 - eps)).where(0.0, made)

    return _formula(c, fn, grad, x)


@aten("native_dropout_backward")
def native_dropout_backward(c: Any, grad: Value, mask: Value, scale: float) -> Value:
    dtype = c.out_type.dtype  # a float also for integers
    g = T(c, grad).to(dtype).wide()
    return (g * T(c, mask).to(g.dtype) * float(scale)).to(dtype).value
