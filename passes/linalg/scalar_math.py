"""Mathematical functions on scalars: `math` ops, and the activations of torch written with them.

f16 and bf16 are widened once for a whole function and rounded once at its end, as eager does.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from mlir import ir

from ..math.exp import ANY_SCALE, NONPOSITIVE
from .scalar_core import Number, Scalar, kind, lowest
from .scalar_divide import ScalarDivide

# functions that are one op of the math dialect
_MATH_OPS = {
    name: f"math.{name}"
    for name in (
        "exp exp2 expm1 log log2 log10 log1p sqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc"
    ).split()
}


class ScalarMath(ScalarDivide):
    """Adds functions of one and two floats."""

    def __getattr__(self, name: str) -> Callable[[Scalar], Scalar]:
        op = _MATH_OPS.get(name)
        if op is None:
            raise AttributeError(f"no scalar function '{name}'")
        return lambda x: self.wide(lambda v: self.emit(op, (v,), v.dtype), x)

    # -- rounding and classification --------------------------------------------------------------------------
    def ceil(self, x: Scalar) -> Scalar:
        """Towards plus infinity; integers unchanged."""
        if kind(x.dtype) != "float":
            return x
        return self.wide(lambda v: self.emit("math.ceil", (v,), v.dtype), x)

    def round(self, x: Scalar) -> Scalar:
        """To the nearest integer, ties to even; integers unchanged."""
        if kind(x.dtype) != "float":
            return x
        return self.wide(lambda v: self.emit("math.roundeven", (v,), v.dtype), x)

    def logical_not(self, x: Scalar) -> Scalar:
        """`x == 0`."""
        return self.bitwise_not(x) if x.dtype == "bool" else self.eq(x, 0)

    def isnan(self, x: Scalar) -> Scalar:
        return self.compare("uno", x, x) if kind(x.dtype) == "float" else self.const(False, "bool")

    def isinf(self, x: Scalar) -> Scalar:
        return self.eq(self.abs(x), math.inf) if kind(x.dtype) == "float" else self.const(False, "bool")

    def isfinite(self, x: Scalar) -> Scalar:
        return self.lt(self.abs(x), math.inf) if kind(x.dtype) == "float" else self.const(True, "bool")

    def sign(self, x: Scalar) -> Scalar:
        """-1, 0 or 1; 0 for NaN (bool: itself)."""
        if x.dtype == "bool":
            return x
        if kind(x.dtype) == "uint":
            return self.cast(self.ne(x, 0), x.dtype)
        low = self.select(self.lt(x, 0), self.const(-1, x.dtype), self.const(0, x.dtype))
        return self.select(self.gt(x, 0), 1, low)

    def signbit(self, x: Scalar) -> Scalar:
        """True for negative numbers, -0.0 and NaN with the sign set."""
        if kind(x.dtype) != "float":
            return self.lt(x, 0)
        x = self.extend(x)
        return self.lt(self.copysign(1.0, x), 0.0)

    # -- functions of one float -------------------------------------------------------------------------------
    def exp_nonpositive(self, x: Scalar, any_scale: bool = False) -> Scalar:
        """`exp(x)` for x that is at most 0 or NaN: cheaper (passes/math/exp.py).

        Cheaper still with `any_scale`: the results of one such op may all have a common factor, a power of two.
        """
        unit = ir.UnitAttr.get(self.location.context)
        attributes = dict.fromkeys((NONPOSITIVE, ANY_SCALE) if any_scale else (NONPOSITIVE,), unit)
        return self.wide(lambda v: self.emit("math.exp", (v,), v.dtype, **attributes), x)

    def reciprocal(self, x: Scalar) -> Scalar:
        return self.wide(lambda v: self.div(1.0, v), x)

    def rsqrt(self, x: Scalar) -> Scalar:
        """`1 / sqrt(x)`, each rounded, as eager."""
        return self.wide(lambda v: self.div(1.0, self.sqrt(v)), x)

    def sigmoid(self, x: Scalar) -> Scalar:
        """`1 / (1 + exp(-x))`."""
        return self.wide(lambda v: self.div(1.0, self.add(self.exp(self.neg(v)), 1.0)), x)

    def silu(self, x: Scalar) -> Scalar:
        """`x / (1 + exp(-x))`."""
        return self.wide(lambda v: self.div(v, self.add(self.exp(self.neg(v)), 1.0)), x)

    def relu(self, x: Scalar) -> Scalar:
        """`max(x, 0)`, NaN kept."""
        return self.maximum(x, 0)

    def relu6(self, x: Scalar) -> Scalar:
        """`min(max(x, 0), 6)`, NaN kept."""
        return self.minimum(self.maximum(x, 0), 6)

    def hardsigmoid(self, x: Scalar) -> Scalar:
        """`min(max(x + 3, 0), 6) / 6`."""
        return self.wide(lambda v: self.div(self.relu6(self.add(v, 3.0)), 6.0), x)

    def hardswish(self, x: Scalar) -> Scalar:
        """`x min(max(x + 3, 0), 6) / 6`."""
        return self.wide(lambda v: self.div(self.mul(v, self.relu6(self.add(v, 3.0))), 6.0), x)

    def gelu(self, x: Scalar, approximate: str = "none") -> Scalar:
        """`x * Phi(x)` by erf ("none") or by tanh ("tanh")."""
        return self.wide(self._gelu_erf if approximate == "none" else self._gelu_tanh, x)

    def _gelu_erf(self, x: Scalar) -> Scalar:
        phi = self.add(self.erf(self.mul(x, math.sqrt(0.5))), 1.0)
        return self.mul(self.mul(x, 0.5), phi)

    def _gelu_tanh(self, x: Scalar) -> Scalar:
        cube = self.mul(self.mul(x, x), x)
        inner = self.mul(self.add(x, self.mul(cube, 0.044715)), math.sqrt(2.0 / math.pi))
        return self.mul(self.mul(x, 0.5), self.add(self.tanh(inner), 1.0))

    def softplus(self, x: Scalar, beta: float = 1.0, threshold: float = 20.0) -> Scalar:
        """`log(1 + exp(beta x)) / beta`, and `x` where `beta x > threshold`."""

        def function(v: Scalar) -> Scalar:
            scaled = self.mul(v, beta)
            return self.select(self.gt(scaled, threshold), v, self.div(self.log1p(self.exp(scaled)), beta))

        return self.wide(function, x)

    def mish(self, x: Scalar) -> Scalar:
        """`x * tanh(log(1 + exp(x)))`."""
        return self.wide(lambda v: self.mul(v, self.tanh(self.log1p(self.exp(v)))), x)

    def logsigmoid(self, x: Scalar) -> Scalar:
        """`min(x, 0) - log(1 + exp(-|x|))`."""
        return self.wide(lambda v: self.sub(self.minimum(v, 0.0), self.log1p(self.exp(self.neg(self.abs(v))))), x)

    def elu(self, x: Scalar, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Scalar:
        """`scale x` where `x > 0`, else `scale alpha (exp(input_scale x) - 1)`."""

        def function(v: Scalar) -> Scalar:
            low = self.mul(self.expm1(self.mul(v, input_scale)), alpha * scale)
            return self.select(self.le(v, 0.0), low, self.mul(v, scale))

        return self.wide(function, x)

    def logit(self, x: Scalar, eps: float | None = None) -> Scalar:
        """`log(x / (1 - x))`, with `x` clamped to `[eps, 1 - eps]` if given. Eager rounds every step of halves."""
        if eps is not None:
            top = self.sub(1.0, self.const(eps, x.dtype))
            x = self.select(self.lt(x, eps), eps, self.select(self.gt(x, top), top, x))
        return self.log(self.div(x, self.sub(1.0, x)))

    # -- functions of two floats ------------------------------------------------------------------------------
    def atan2(self, a: Scalar | Number, b: Scalar | Number) -> Scalar:
        a, b = self.pair(a, b)
        return self.wide(lambda y, x: self.emit("math.atan2", (y, x), y.dtype), a, b)

    def hypot(self, a: Scalar | Number, b: Scalar | Number) -> Scalar:
        """`sqrt(a^2 + b^2)` without overflow: the larger one times `sqrt(1 + (smaller / larger)^2)`; inf beats NaN."""
        a, b = self.pair(a, b)
        return self.wide(self._hypot, a, b)

    def _hypot(self, a: Scalar, b: Scalar) -> Scalar:
        a, b = self.abs(a), self.abs(b)
        if a.dtype == "f32":  # f64 has the range and more than twice the digits
            x, y = self.cast(a, "f64"), self.cast(b, "f64")
            result = self.cast(self.sqrt(self.add(self.mul(x, x), self.mul(y, y))), "f32")
        else:
            high, low = self.maximum(a, b), self.minimum(a, b)
            ratio = self.select(self.eq(high, 0.0), 0.0, self.div(low, high))
            result = self.mul(high, self.sqrt(self.add(self.mul(ratio, ratio), 1.0)))
        infinite = self.bitwise_or(self.eq(a, math.inf), self.eq(b, math.inf))
        return self.select(infinite, math.inf, result)

    def logaddexp(self, a: Scalar | Number, b: Scalar | Number) -> Scalar:
        """`log(exp(a) + exp(b))`; equal infinities give themselves."""
        a, b = self.pair(a, b)

        def function(x: Scalar, y: Scalar) -> Scalar:
            same = self.bitwise_and(self.isinf(x), self.eq(x, y))
            spread = self.neg(self.abs(self.sub(x, y)))
            return self.select(same, x, self.add(self.maximum(x, y), self.log1p(self.exp(spread))))

        return self.wide(function, a, b)

    def xlogy(self, a: Scalar | Number, b: Scalar | Number) -> Scalar:
        """`a log(b)`; 0 where `a` is 0, NaN where `b` is."""
        a, b = self.pair(a, b)

        def function(x: Scalar, y: Scalar) -> Scalar:
            value = self.select(self.eq(x, 0.0), 0.0, self.mul(x, self.log(y)))
            return self.select(self.isnan(y), y, value)

        return self.wide(function, a, b)

    def nextafter(self, a: Scalar | Number, b: Scalar | Number) -> Scalar:
        """The float next to `a` towards `b`: its bits plus or minus one; NaN if either is."""
        x, y = self.pair(a, b)
        bits = {"f64": "i64", "f32": "i32"}.get(x.dtype, "i16")
        pattern = self.emit("arith.bitcast", (x,), bits)
        outward = self.ne(self.gt(x, y), self.gt(x, 0.0))  # away from zero: the pattern grows
        moved = self.select(outward, self.add(pattern, 1), self.sub(pattern, 1))
        smallest = self.select(self.gt(y, 0.0), self.const(1, bits), self.const(lowest(bits) + 1, bits))
        moved = self.select(self.eq(x, 0.0), smallest, moved)
        made = self.select(self.eq(x, y), y, self.emit("arith.bitcast", (moved,), x.dtype))
        return self.select(self.bitwise_or(self.isnan(x), self.isnan(y)), math.nan, made)
