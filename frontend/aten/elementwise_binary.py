"""ATen's pointwise functions of two tensors, or a tensor and a number.

Both operands are promoted to one dtype. On CPUs eager multiplies and divides f16 and bf16 by a number or a 0-d tensor in f32,
without rounding that to 16 bits first, and in all other ops the number is rounded like a tensor. On GPUs it adds and subtracts
numbers so, too, and 0-d tensors that lie on the CPU; those on the GPU are tensors like others.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ...dialects import dtypes
from .promotion import as_value, is_half, opmath, promote, result_type
from .registry import Value, add, aten, require
from .tensor_math import T


def _register(name: str, function: Callable[..., Any], *forms: str) -> None:
    for form in forms:
        add(f"{name}.{form}", function)


def arithmetic(c: Any, op: str, x: Any, y: Any, dtype: str | None = None, **attributes: Any) -> Value:
    """`lamina.<op>` of two promoted operands, as `dtype` (by default the promoted one)."""
    common = dtype or result_type(c, (x, y))
    in_f32 = ("mul", "add", "sub") if c.on_gpu else ("mul",)
    scalars = (y,) if op == "div" else (x, y) if op in in_f32 else ()
    if not is_half(common) or not any(_is_unrounded(c, v) for v in scalars):
        return c.op(op, as_value(c, x, common), as_value(c, y, common), **attributes)
    made = c.op(op, as_value(c, x, "f32"), as_value(c, y, "f32"), **attributes)
    return c.cast(made, common)


def _is_unrounded(c: Any, v: Any) -> bool:
    """True for a number, or a 0-d tensor that eager does not round to the dtype of the others."""
    return not isinstance(v, Value) or (c.is_on_host(v) if c.on_gpu else not c.type(v).rank)


def _plain(op: str) -> Any:
    """The op on promoted operands; comparisons and logical ops give bool."""

    def convert(c: Any, x: Any, y: Any) -> Value:
        (a, b), _ = promote(c, x, y)
        return c.op(op, a, b)

    return convert


def _float(op: str) -> Any:
    """As `_plain`, integers as floats."""

    def convert(c: Any, x: Any, y: Any) -> Value:
        dtype = c.out_type.dtype
        return c.op(op, as_value(c, x, dtype), as_value(c, y, dtype))

    return convert


def _logical(op: str) -> Any:
    def convert(c: Any, x: Value, y: Value) -> Value:
        return c.op(op, c.cast(x, "bool"), c.cast(y, "bool"))

    return convert


for _name in "eq ne lt le gt ge".split():
    _register(_name, _plain(_name), "Tensor", "Scalar")
for _name, _op in {"greater": "gt", "less": "lt", "not_equal": "ne", "greater_equal": "ge", "less_equal": "le"}.items():
    _register(_name, _plain(_op), "Tensor", "Scalar")
for _name in "bitwise_and bitwise_or bitwise_xor".split():
    _register(_name, _plain(_name), "Tensor", "Scalar", "Scalar_Tensor")
for _name, _op in {"__and__": "bitwise_and", "__or__": "bitwise_or", "__xor__": "bitwise_xor"}.items():
    _register(_name, _plain(_op), "Tensor", "Scalar")
for _name, _op in {"bitwise_left_shift": "shift_left", "bitwise_right_shift": "shift_right"}.items():
    _register(_name, _plain(_op), "Tensor", "Tensor_Scalar", "Scalar_Tensor")
for _name, _op in {"__lshift__": "shift_left", "__rshift__": "shift_right"}.items():
    _register(_name, _plain(_op), "Tensor", "Scalar")
for _name in "logical_and logical_or logical_xor".split():
    add(_name, _logical(_name))
for _name in "maximum minimum".split():
    add(_name, _plain(_name))
_register("fmod", _plain("fmod"), "Tensor", "Scalar")
_register("remainder", _plain("remainder"), "Tensor", "Scalar", "Scalar_Tensor")
_register("copysign", _float("copysign"), "Tensor", "Scalar")
for _name in "atan2 arctan2 hypot logaddexp".split():
    add(_name, _float("atan2" if _name == "arctan2" else _name))
add("nextafter", _plain("nextafter"))
for _name in ("xlogy", "special_xlogy"):
    _tensor = "Tensor" if _name == "xlogy" else "default"
    _others = ("Scalar_Other", "Scalar_Self") if _name == "xlogy" else ("other_scalar", "self_scalar")
    _register(_name, _float("xlogy"), _tensor, *_others)


# -- arithmetic -------------------------------------------------------------------------------------------------
def _sum(c: Any, op: str, x: Any, y: Any, alpha: Any) -> Value:
    """`x + alpha y` or `x - alpha y`, rounded once: eager has one multiply-add."""
    dtype = c.out_type.dtype
    if alpha == 1:
        return arithmetic(c, op, x, y, dtype)
    wide = opmath(dtype)
    a, b, factor = (
        as_value(c, v, wide) if c.on_gpu and _is_unrounded(c, v) else c.cast(as_value(c, v, dtype), wide)
        for v in (x, y, alpha)
    )
    if not dtypes.is_float(dtype):
        return c.op(op, a, c.op("mul", b, factor))
    return c.cast(c.op("fma", b, factor if op == "add" else c.op("neg", factor), a), dtype)


@aten("add.Tensor", "add.Scalar")
def add_(c: Any, x: Any, y: Any, alpha: Any = 1) -> Value:
    return _sum(c, "add", x, y, alpha)


@aten("sub.Tensor", "sub.Scalar", "subtract.Tensor")
def sub(c: Any, x: Any, y: Any, alpha: Any = 1) -> Value:
    return _sum(c, "sub", x, y, alpha)


@aten("rsub.Tensor", "rsub.Scalar")
def rsub(c: Any, x: Any, y: Any, alpha: Any = 1) -> Value:
    return _sum(c, "sub", y, x, alpha)


@aten("mul.Tensor", "mul.Scalar", "multiply.Tensor")
def mul(c: Any, x: Any, y: Any) -> Value:
    return arithmetic(c, "mul", x, y)


@aten("div.Tensor", "div.Scalar", "true_divide.Tensor", "divide.Tensor")
def div(c: Any, x: Any, y: Any) -> Value:
    return arithmetic(c, "div", x, y, c.out_type.dtype)


@aten("div.Tensor_mode", "div.Scalar_mode")
def div_mode(c: Any, x: Any, y: Any, rounding_mode: str | None = None) -> Value:
    return arithmetic(c, "div", x, y, c.out_type.dtype, rounding=rounding_mode or "none")


@aten("floor_divide", "floor_divide.Scalar")
def floor_divide(c: Any, x: Any, y: Any) -> Value:
    return arithmetic(c, "div", x, y, rounding="floor")


@aten("ldexp.Tensor")
def ldexp(c: Any, x: Value, y: Value) -> Value:
    """`x · 2^y`; for a float and an integer rounded once, though `2^y` itself may be no float."""
    dtype = c.out_type.dtype
    if not (dtypes.is_float(c.type(x).dtype) and dtypes.is_int(c.type(y).dtype)):
        return arithmetic(c, "mul", x, c.op("exp2", c.cast(y, dtype)), dtype)
    wide, n = T(c, x).to("f64"), T(c, y).to("i64")
    # steps of C's scalbn: 969 down leave the 53 bits for the last one to round
    for _ in range(2 if dtype == "f64" else 0):
        step = n.gt(1023).where(n.like(1023), n.lt(-1022).where(n.like(-969), 0))
        wide, n = wide * step.to("f64").op("exp2"), n - step
    last = n.op("maximum", -1022).op("minimum", 1023)
    return (wide * last.to("f64").op("exp2")).to(dtype).value


# -- power ------------------------------------------------------------------------------------------------------
@aten("pow.Tensor_Tensor")
def pow_(c: Any, x: Value, y: Value) -> Value:
    return arithmetic(c, "pow", x, y)


@aten("pow.Scalar")
def pow_base(c: Any, x: Any, y: Value) -> Value:
    if x == 1:
        return c.scalar(1, c.out_type.dtype, c.type(y).shape)
    return arithmetic(c, "pow", x, y, c.out_type.dtype)


@aten("pow.Tensor_Scalar")
def pow_exponent(c: Any, x: Value, exponent: Any) -> Value:
    """Eager's special exponents, which are products and roots, not the general power."""
    dtype = c.out_type.dtype
    if exponent == 0:
        return c.scalar(1, dtype, c.type(x).shape)
    if exponent == 1:
        return c.cast(x, dtype)
    if not dtypes.is_float(dtype):
        require(exponent >= 0, "a negative integer power, which eager refuses")
        return c.op("pow", c.cast(x, dtype), as_value(c, exponent, dtype))
    t = T(c, c.cast(x, opmath(dtype)))
    if exponent not in (0.5, -0.5, 2, 3, -1, -2):
        return c.op("pow", c.cast(x, dtype), as_value(c, exponent, dtype))
    match exponent:
        case 0.5:
            made = t.op("sqrt")
        case -0.5:
            made = t.rsqrt()
        case 2:
            made = t * t
        case 3:
            made = t * t * t
        case -1:
            made = t.op("reciprocal")
        case _:
            made = (t * t).op("reciprocal")
    return made.to(dtype).value


# -- choices and others -----------------------------------------------------------------------------------------
@aten("fmax")
def fmax(c: Any, x: Value, y: Value) -> Value:
    return _ignoring_nan(c, "maximum", x, y)


@aten("fmin")
def fmin(c: Any, x: Value, y: Value) -> Value:
    return _ignoring_nan(c, "minimum", x, y)


def _ignoring_nan(c: Any, op: str, x: Value, y: Value) -> Value:
    (a, b), dtype = promote(c, x, y)
    made = c.op(op, a, b)
    if not dtypes.is_float(dtype):
        return made
    return c.op("where", c.op("isnan", a), b, c.op("where", c.op("isnan", b), a, made))


@aten("heaviside")
def heaviside(c: Any, x: Value, values: Value) -> Value:
    """`values` where `x` is 0, else 1 for positive and 0 for negative `x` and NaN."""
    (a, b), dtype = promote(c, x, values)
    t = T(c, a)
    return t.eq(number_like(0, dtype)).where(T(c, b), t.gt(number_like(0, dtype)).to(dtype)).value


def number_like(value: int, dtype: str) -> Any:
    """A Python number of `dtype`'s kind."""
    return float(value) if dtypes.is_float(dtype) else value


@aten("logaddexp2")
def logaddexp2(c: Any, x: Value, y: Value) -> Value:
    (a, b), dtype = promote(c, x, y)
    a, b = (c.cast(v, opmath(dtype)) for v in (a, b))
    t, u = T(c, a), T(c, b)
    same = t.op("isinf") & t.eq(u)
    spread = -(t - u).abs()
    made = t.op("maximum", u) + spread.op("exp2").op("log1p") * (1 / math.log(2))
    return same.where(t, made).to(dtype).value


@aten("special_xlog1py", "special_xlog1py.other_scalar", "special_xlog1py.self_scalar")
def xlog1py(c: Any, x: Any, y: Any) -> Value:
    dtype = c.out_type.dtype
    a, b = (T(c, as_value(c, v, opmath(dtype))) for v in (x, y))
    made = a.eq(0.0).where(0.0, a * b.op("log1p"))
    return b.op("isnan").where(b, made).to(dtype).value


@aten("isin.Tensor_Tensor", "isin.Tensor_Scalar", "isin.Scalar_Tensor")
def isin(c: Any, elements: Any, tests: Any, assume_unique: bool = False, invert: bool = False) -> Value:
    """Whether each element equals one of `tests`; all pairs are compared."""
    (a, b), _ = promote(c, elements, tests)
    t, u = T(c, a), T(c, b)
    u = u.reshape(u.numel(*range(u.rank)))
    found = t.unsqueeze(-1).op("eq", u).op("any", dims=(t.rank,), keepdim=False)
    return (found.op("logical_not") if invert else found).value
