"""ATen's pointwise functions of one tensor: rows name the lamina op, compositions are formulas."""

from __future__ import annotations

import math
from typing import Any

from ...dialects import dtypes
from .promotion import opmath
from .registry import Value, add, aten, require
from .tensor_math import T

# aten name -> lamina op; integers and bool are first cast to the result's float dtype
_FLOAT = (
    {
        name: name
        for name in (
            "exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal sin cos tan asin acos atan sinh cosh tanh asinh acosh "
            "atanh erf erfc sigmoid silu mish"
        ).split()
    }
    | {f"special_{n}": n for n in "exp2 expm1 log1p erf erfc".split()}
    | {"special_expit": "sigmoid"}
)
_FLOAT |= {"hardswish": "hardswish", "hardsigmoid": "hardsigmoid"}

# the dtype stays; integers allowed
_SAME = {n: n for n in "neg abs floor ceil trunc round relu relu6".split()} | {"fix": "trunc", "absolute": "abs"}
_SAME |= {"negative": "neg", "special_round": "round"}

_PREDICATES = {"isnan": False, "isinf": False, "isfinite": True}  # and what it is for every integer and bool


def _float(op: str) -> Any:
    return lambda c, x: c.op(op, c.cast(x, c.out_type.dtype))


def _same(op: str) -> Any:
    return lambda c, x: c.op(op, x)


def _predicate(op: str, constant: bool) -> Any:
    def convert(c: Any, x: Value) -> Value:
        type = c.type(x)
        return c.op(op, x) if dtypes.is_float(type.dtype) else c.scalar(constant, "bool", type.shape)

    return convert


for _name, _op in _FLOAT.items():
    add(_name, _float(_op))
for _name, _op in _SAME.items():
    add(_name, _same(_op))
for _name, _constant in _PREDICATES.items():
    add(_name, _predicate(_name, _constant))


@aten("logical_not")
def logical_not(c: Any, x: Value) -> Value:
    return c.op("logical_not", x)


@aten("bitwise_not")
def bitwise_not(c: Any, x: Value) -> Value:
    return c.op("bitwise_not", x)


@aten("sign", "sgn")
def sign(c: Any, x: Value) -> Value:
    return x if c.type(x).dtype == "bool" else c.op("sign", x)


@aten("signbit")
def signbit(c: Any, x: Value) -> Value:
    return c.scalar(False, "bool", c.type(x).shape) if c.type(x).dtype == "bool" else c.op("signbit", x)


@aten("round.decimals", "special_round.decimals")
def round_decimals(c: Any, x: Value, decimals: int = 0) -> Value:
    """`round(x * 10^d) / 10^d`; a negative `d` divides first."""
    t = T(c, x)
    if decimals == 0 or not dtypes.is_float(t.dtype):
        require(decimals == 0, "round of integers to tens")
        return t.op("round").value
    wide = t.wide()
    power = 10.0 ** abs(decimals)
    made = (wide * power).op("round") / power if decimals > 0 else (wide / power).op("round") * power
    return made.to(t.dtype).value


@aten("angle")
def angle(c: Any, x: Value) -> Value:
    """0 for positive, pi for negative numbers; NaN stays."""
    t = T(c, c.cast(x, c.out_type.dtype))
    return t.lt(0.0).where(math.pi, t.op("isnan").where(t, 0.0)).value


@aten("square")
def square(c: Any, x: Value) -> Value:
    return c.op("mul", x, x)


@aten("positive", "conj", "conj_physical", "resolve_conj", "resolve_neg", "real")
def positive(c: Any, x: Value) -> Value:
    return x


@aten("isposinf")
def isposinf(c: Any, x: Value) -> Value:
    return _equals_infinity(c, x, math.inf)


@aten("isneginf")
def isneginf(c: Any, x: Value) -> Value:
    return _equals_infinity(c, x, -math.inf)


def _equals_infinity(c: Any, x: Value, infinity: float) -> Value:
    type = c.type(x)
    if not dtypes.is_float(type.dtype):
        return c.scalar(False, "bool", type.shape)
    return T(c, x).eq(infinity).value


@aten("frac")
def frac(c: Any, x: Value) -> Value:
    return (T(c, x) - T(c, x).op("trunc")).value


@aten("deg2rad")
def deg2rad(c: Any, x: Value) -> Value:
    return _scaled(c, x, math.pi / 180)


@aten("rad2deg")
def rad2deg(c: Any, x: Value) -> Value:
    return _scaled(c, x, 180 / math.pi)


def _scaled(c: Any, x: Value, factor: float) -> Value:
    dtype = c.out_type.dtype
    return (T(c, x).to(opmath(dtype)) * factor).to(dtype).value


@aten("sinc", "special_sinc")
def sinc(c: Any, x: Value) -> Value:
    dtype = c.out_type.dtype
    t = T(c, x).to(opmath(dtype))
    scaled = t * math.pi
    return t.eq(0.0).where(1.0, scaled.op("sin") / scaled).to(dtype).value


@aten("special_entr")
def entr(c: Any, x: Value) -> Value:
    """`-x log x` for positive `x`, 0 for 0, -inf below; NaN stays."""
    dtype = c.out_type.dtype
    t = T(c, x).to(opmath(dtype))
    low = t.lt(0.0).where(-math.inf, t.abs())
    return t.gt(0.0).where(-t * t.log(), low).to(dtype).value


@aten("nan_to_num")
def nan_to_num(
    c: Any, x: Value, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Value:
    if not dtypes.is_float(c.type(x).dtype):
        return x
    return c.op("nan_to_num", x, nan=nan or 0.0, posinf=posinf, neginf=neginf)


@aten("logit", "special_logit")
def logit(c: Any, x: Value, eps: float | None = None) -> Value:
    return c.op("logit", c.cast(x, c.out_type.dtype), eps=eps)
