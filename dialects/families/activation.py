"""Activations with attributes: gelu, elu, softplus, leaky_relu, hardshrink, softshrink, threshold, logit.

Each is one op because eager computes it in one kernel, widened once and rounded once. Their gradients are compositions.
"""

from __future__ import annotations

import math
from typing import Any

from ..lazy import np, pt, wide
from ..op import Attr, Op, Operand, Result, check, sample
from ..record import TensorType
from .unary import elementwise, specials, takes


class _Activation(Op):
    """Base: a float tensor in, the same type out."""

    @staticmethod
    def infer(x: TensorType, **_: Any) -> TensorType:
        takes(x, "float")
        return x


def _samples(**attributes: Any) -> tuple:
    return tuple(sample(o, low=-4, high=4, **attributes) for o in ((3, 5), ("bf16", (7,)), ("f64", (4,)), specials()))


class Gelu(_Activation, name="gelu", category="pointwise"):
    """`x * Phi(x)` with the normal distribution `Phi`: by erf ("none"), or by its tanh approximation ("tanh").

    none: `0.5 x (1 + erf(x / sqrt 2))`;  tanh: `0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))`
    """

    x: Operand
    approximate: Attr[str] = "none"
    y: Result

    samples = _samples(approximate="none") + _samples(approximate="tanh")
    numerics = "order"  # `1 + erf` cancels for negative x: the error is absolute, eager's too

    @staticmethod
    def infer(x, approximate):
        takes(x, "float")
        check(approximate in ("none", "tanh"), f"approximate is 'none' or 'tanh', got '{approximate}'")
        return x

    @staticmethod
    def torch(x, approximate):
        if approximate == "none":  # torch's vectors of f32 make NaN of infinity on AVX-512, its scalars and f64 do not
            return pt.nn.functional.gelu(x.double()).to(x.dtype)
        return pt.nn.functional.gelu(x, approximate=approximate)

    @staticmethod
    def reference(x, approximate):
        v = wide(x)
        if approximate == "none":
            phi = 1 + elementwise(math.erf)(v * math.sqrt(0.5))
        else:
            phi = 1 + np.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3))
        return (0.5 * v * phi).astype(x.dtype)

    @staticmethod
    def lower(b, x, approximate):
        return b.gelu(x, approximate=approximate)


class Softplus(_Activation, name="softplus", category="pointwise"):
    """`log(1 + exp(beta x)) / beta`, and `x` itself where `beta x > threshold`."""

    x: Operand
    beta: Attr[float] = 1.0
    threshold: Attr[float] = 20.0
    y: Result

    samples = _samples() + _samples(beta=2.0, threshold=3.0)
    numerics = "bounded"

    @staticmethod
    def torch(x, beta, threshold):
        return pt.nn.functional.softplus(x, beta, threshold)

    @staticmethod
    def reference(x, beta, threshold):
        v = wide(x)
        return np.where(v * beta > threshold, v, np.log1p(np.exp(v * beta)) / beta).astype(x.dtype)

    @staticmethod
    def lower(b, x, beta, threshold):
        return b.softplus(x, beta=beta, threshold=threshold)


class Elu(_Activation, name="elu", category="pointwise"):
    """`scale x` where `x > 0`, else `scale alpha (exp(input_scale x) - 1)`; celu and selu are cases of it."""

    x: Operand
    alpha: Attr[float] = 1.0
    scale: Attr[float] = 1.0
    input_scale: Attr[float] = 1.0
    y: Result

    samples = _samples() + _samples(alpha=1.5, scale=1.25, input_scale=0.5)
    numerics = "bounded"

    @staticmethod
    def torch(x, alpha, scale, input_scale):
        return pt.ops.aten.elu(x, alpha, scale, input_scale)

    @staticmethod
    def reference(x, alpha, scale, input_scale):
        v = wide(x)
        return np.where(v <= 0, alpha * scale * np.expm1(v * input_scale), v * scale).astype(x.dtype)

    @staticmethod
    def lower(b, x, alpha, scale, input_scale):
        return b.elu(x, alpha=alpha, scale=scale, input_scale=input_scale)


class LeakyRelu(_Activation, name="leaky_relu", category="pointwise"):
    """`x` where `x > 0`, else `slope x`."""

    x: Operand
    slope: Attr[float] = 0.01
    y: Result

    samples = _samples() + _samples(slope=-0.5)

    @staticmethod
    def torch(x, slope):
        return pt.nn.functional.leaky_relu(x, slope)

    @staticmethod
    def reference(x, slope):
        v = wide(x)
        return np.where(v > 0, v, v * (np.float32(slope) if x.dtype != np.float64 else slope)).astype(x.dtype)

    @staticmethod
    def lower(b, x, slope):
        return b.map(lambda s, x: s.wide(lambda v: s.select(s.gt(v, 0.0), v, s.mul(v, slope)), x), x)


class Hardshrink(_Activation, name="hardshrink", category="pointwise"):
    """0 where `-lambd <= x <= lambd`, else `x`."""

    x: Operand
    lambd: Attr[float] = 0.5
    y: Result

    samples = _samples() + _samples(lambd=1.0)

    @staticmethod
    def torch(x, lambd):
        return pt.nn.functional.hardshrink(x, lambd)

    @staticmethod
    def reference(x, lambd):
        return np.where((wide(x) >= -lambd) & (wide(x) <= lambd), 0, wide(x)).astype(x.dtype)

    @staticmethod
    def lower(b, x, lambd):
        def body(s, v):
            return s.select(s.bitwise_and(s.ge(v, -lambd), s.le(v, lambd)), 0.0, v)

        return b.map(body, x)


class Softshrink(_Activation, name="softshrink", category="pointwise"):
    """`x - lambd` above `lambd`, `x + lambd` below `-lambd`, else 0; NaN stays."""

    x: Operand
    lambd: Attr[float] = 0.5
    y: Result

    samples = _samples() + _samples(lambd=1.0)

    @staticmethod
    def torch(x, lambd):
        return pt.nn.functional.softshrink(x, lambd)

    @staticmethod
    def reference(x, lambd):
        v = wide(x)
        return np.where(v > lambd, v - lambd, np.where(v < -lambd, v + lambd, v * 0)).astype(x.dtype)

    @staticmethod
    def lower(b, x, lambd):
        def function(s, v):
            low = s.select(s.lt(v, -lambd), s.add(v, lambd), s.mul(v, 0.0))
            return s.select(s.gt(v, lambd), s.sub(v, lambd), low)

        return b.map(lambda s, x: s.wide(lambda v: function(s, v), x), x)


class Logit(_Activation, name="logit", category="pointwise"):
    """`log(x / (1 - x))`, with `x` clamped to `[eps, 1 - eps]` unless `eps` is None."""

    x: Operand
    eps: Attr[float] = None  # type: ignore[assignment]
    y: Result

    samples = (sample((3, 5), low=0.1, high=0.9), sample((9,), eps=0.1), sample(("bf16", (4,)), low=0.1, high=0.9))
    numerics = "bounded"

    @staticmethod
    def torch(x, eps):
        return pt.logit(x, eps)

    @staticmethod
    def reference(x, eps):
        def rounded(v):
            return wide(np.asarray(v).astype(x.dtype))

        v = wide(x) if eps is None else np.clip(wide(x), eps, 1 - eps)
        return np.log(rounded(v / rounded(1 - v))).astype(x.dtype)

    @staticmethod
    def lower(b, x, eps):
        return b.logit(x, eps=eps)


class Threshold(Op, name="threshold", category="pointwise"):
    """`x` where `x > threshold`, else `value`; NaN stays."""

    x: Operand
    threshold: Attr[float]
    value: Attr[float]
    y: Result

    samples = _samples(threshold=0.5, value=-7.0) + (sample(("i32", (9,)), low=-5, high=5, threshold=1, value=20),)

    @staticmethod
    def infer(x, threshold, value):
        takes(x, "number")
        return x

    @staticmethod
    def torch(x, threshold, value):
        return pt.nn.functional.threshold(x, threshold, value)

    @staticmethod
    def reference(x, threshold, value):
        return np.where(wide(x) <= threshold, value, wide(x)).astype(x.dtype)

    @staticmethod
    def lower(b, x, threshold, value):
        return b.map(lambda s, v: s.select(s.le(v, threshold), value, v), x)


class NanToNum(_Activation, name="nan_to_num", category="pointwise"):
    """NaN replaced by `nan`, infinities by `posinf` and `neginf` (None: the dtype's extreme finite values)."""

    x: Operand
    nan: Attr[float] = 0.0
    posinf: Attr[float] = None  # type: ignore[assignment]
    neginf: Attr[float] = None  # type: ignore[assignment]
    y: Result

    samples = (*_samples(), *_samples(nan=1.5, posinf=7.0, neginf=-3.0))

    @staticmethod
    def torch(x, nan, posinf, neginf):
        return pt.nan_to_num(x, nan, posinf, neginf)

    @staticmethod
    def reference(x, nan, posinf, neginf):
        top = _LARGEST[str(x.dtype)]
        high, low = (top if posinf is None else posinf), (-top if neginf is None else neginf)
        v = wide(x)
        return np.where(v != v, nan, np.where(v == np.inf, high, np.where(v == -np.inf, low, v))).astype(x.dtype)

    @staticmethod
    def lower(b, x, nan, posinf, neginf):
        names = {"f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16"}
        top = _LARGEST[names[x.dtype]]
        high, low = (top if posinf is None else posinf), (-top if neginf is None else neginf)

        def body(s, v):
            v = s.select(s.isnan(v), nan, v)
            return s.select(s.eq(v, math.inf), high, s.select(s.eq(v, -math.inf), low, v))

        return b.map(body, x)


_LARGEST = {
    "float64": 1.7976931348623157e308,
    "float32": 3.4028234663852886e38,
    "float16": 65504.0,
    "bfloat16": 3.3895313892515355e38,
}
