"""Pointwise functions of two tensors of one dtype, with numpy broadcasting; one row each.

The frontend makes type promotion explicit with `cast`, so operands have equal dtypes; comparisons and logical ops give
bool. The lowering of a row is the scalar function of the same name. Integer division by zero is a run-time check.
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable
from typing import Any

from ..dtypes import is_float
from ..lazy import np, pt, wide
from ..op import Attr, Op, Operand, Result, broadcast, check, sample
from ..record import TensorType
from .unary import takes, torch_function

_SPECIAL = (0.0, -0.0, 1.0, -1.0, 2.5, -3.0, math.inf, -math.inf, math.nan)


def same_dtype(*xs: TensorType) -> str:
    """The common dtype; OpError if they differ."""
    dtypes = [x.dtype for x in xs]
    check(len(set(dtypes)) == 1, f"operands of different dtypes {', '.join(dtypes)}; cast them first")
    return dtypes[0]


def infer_binary(x: TensorType, y: TensorType, domain: str, result: str | None = None) -> TensorType:
    """The broadcast type of two operands of one dtype from `domain`."""
    dtype = same_dtype(x, y)
    takes(x, domain)
    return TensorType(result or dtype, broadcast(x.shape, y.shape))


def pairs(rng: Any) -> Any:
    """All pairs of special floats: a column (its partner is `row`)."""
    return np.array(_SPECIAL, np.float32)[:, None]


def row(rng: Any) -> Any:
    """The special floats in a row."""
    return np.array(_SPECIAL, np.float32)


def integers(*values: int, dtype: str = "int32") -> Callable[[Any], Any]:
    """An operand with these integers."""
    return lambda rng: np.array(values, dtype)


_EDGE = 2**31 - 1
_FLOATS = (
    sample((2, 3), (3,)),
    sample(("bf16", (4, 1)), ("bf16", (3,))),
    sample(("f64", ()), ("f64", (2,))),
    sample(pairs, row),
)
_INTS = (
    sample(integers(-7, 7, -7, 7, -8, _EDGE, -_EDGE - 1), integers(3, -3, -3, 3, 3, 2, 5)),
    sample(integers(250, 7, 128, 1, dtype="uint8"), integers(9, 3, 128, 255, dtype="uint8")),
    sample(("i64", (2, 3)), ("i64", ()), low=1, high=9),
    sample(integers(-100, 100, -128, dtype="int8"), integers(100, 100, -1, dtype="int8")),
)
_BOOLS = (sample(("bool", (8,)), ("bool", (8,))),)


def _binary(
    name: str,
    doc: str,
    reference: Callable[[Any, Any], Any],
    torch: str | None = None,
    domain: str = "number",
    result: str | None = None,
    numerics: str = "exact",
    samples: tuple = (),
    widen: bool = True,
) -> None:
    """Define one op; `reference` gets floats as float64, or as they are unless `widen`."""
    if not samples:
        samples = () if domain == "bits" else _FLOATS
        samples += () if domain == "float" else _INTS
        samples += _BOOLS if domain in ("any", "bits") else ()

    def infer(x: TensorType, y: TensorType) -> TensorType:
        return infer_binary(x, y, domain, result)

    def evaluate(x: Any, y: Any) -> Any:
        with np.errstate(all="ignore"):
            value = np.asarray(reference(wide(x), wide(y)) if widen else reference(x, y))
        return value.astype(np.bool_ if result == "bool" else x.dtype)

    def lower(b: Any, x: Any, y: Any) -> Any:
        return b.map(lambda s, v, w: getattr(s, name)(v, w), x, y, dtypes=result or x.dtype)

    def body(namespace: dict[str, Any]) -> None:
        namespace.update(
            __doc__=doc[0].upper() + doc[1:] + ".",
            __module__=__name__,
            __annotations__={"x": Operand, "y": Operand, "z": Result},
            infer=staticmethod(infer),
            reference=staticmethod(evaluate),
            lower=staticmethod(lower),
            torch=staticmethod(torch_function(torch or name)),
            samples=samples,
            numerics=numerics,
        )

    title = "".join(p.capitalize() for p in name.split("_"))
    types.new_class(title, (Op,), {"name": name, "category": "pointwise"}, body)


def _power(x: Any, y: Any) -> Any:
    if x.dtype.kind == "f":
        return np.power(x, y)
    x, y = np.broadcast_arrays(x, y)
    return np.array([_int_power(int(a), int(b)) for a, b in zip(x.flat, y.flat)], object).reshape(x.shape) % 2**64


def _int_power(a: int, b: int) -> int:
    if b >= 0:
        return pow(a, b, 2**64)
    return {1: 1, -1: -1 if b % 2 else 1}.get(a, 0)


def _wrapping(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """The low bits of a result in exact integers, as the operands' dtype."""

    def call(x: Any, y: Any) -> Any:
        value = function(x, y)
        if x.dtype.kind == "f":
            return value
        bits = 8 * x.dtype.itemsize
        flat = [int(v) & (1 << bits) - 1 for v in np.asarray(value).flat]
        if x.dtype.kind == "i":
            flat = [v - (1 << bits) if v >> (bits - 1) else v for v in flat]
        return np.array(flat, x.dtype).reshape(np.shape(value))

    return call


def _remainder(x: Any, y: Any) -> Any:
    if x.dtype.kind != "f":
        return np.mod(x, y)
    rest = np.fmod(x, y)
    return np.where((rest != 0) & ((y < 0) != (rest < 0)), rest + y, rest)


def _hypot(x: Any, y: Any) -> Any:
    return np.hypot(x, y)


def _logaddexp(x: Any, y: Any) -> Any:
    return np.logaddexp(x, y)


def _xlogy(x: Any, y: Any) -> Any:
    return np.where(y != y, y, np.where(x == 0, 0, x * np.log(y)))


def _shift_left(x: Any, y: Any) -> Any:
    bits = 8 * x.dtype.itemsize
    x, y = np.broadcast_arrays(x, y)
    return np.array([int(a) << int(b) if 0 <= b < bits else 0 for a, b in zip(x.flat, y.flat)], object).reshape(x.shape)


def _shift_right(x: Any, y: Any) -> Any:
    bits = 8 * x.dtype.itemsize
    x, y = np.broadcast_arrays(x, y)
    return np.array([int(a) >> (int(b) if 0 <= b < bits else bits) for a, b in zip(x.flat, y.flat)], object).reshape(
        x.shape
    )


_POWERS = (
    *_FLOATS,
    sample(integers(-3, 2, 0, -1, 1, 3, 7, 2), integers(3, 31, 0, -3, -5, -1, 30, 40)),
    sample(integers(3, 200, 0, dtype="uint8"), integers(5, 3, 0, dtype="uint8")),
    sample(integers(3, -1, dtype="int64"), integers(64, 1000001, dtype="int64")),
)
_SHIFTS = (
    sample(integers(1, -8, 7, -1, 5, 9), integers(3, 1, 31, 40, 32, 0)),
    sample(integers(255, 129, 3, dtype="uint8"), integers(1, 8, 7, dtype="uint8")),
    sample(integers(-128, 127, dtype="int8"), integers(7, 8, dtype="int8")),
)

_binary("add", "`x + y`; integers wrap around, bool is or", lambda x, y: x + y, domain="any")
_binary("sub", "`x - y`; integers wrap around", lambda x, y: x - y)
_binary("mul", "`x y`; integers wrap around, bool is and", lambda x, y: x * y, domain="any")
_binary(
    "pow",
    "`x^y`; integers wrap around, a negative exponent gives 1, -1 or 0",
    _wrapping(_power),
    numerics="bounded",
    samples=_POWERS,
)
_binary("maximum", "the larger one; NaN if either is", lambda x, y: np.maximum(x, y), domain="any")
_binary("minimum", "the smaller one; NaN if either is", lambda x, y: np.minimum(x, y), domain="any")
_binary("fmod", "the remainder of `x / y` with the sign of `x`", lambda x, y: np.fmod(x, y))
_binary("remainder", "the remainder of `x / y` with the sign of `y`", _remainder)
_binary("atan2", "the angle of the point `(y, x)`", lambda x, y: np.arctan2(x, y), domain="float", numerics="bounded")
_binary("hypot", "`sqrt(x^2 + y^2)` without overflow", _hypot, domain="float", numerics="bounded")
_binary("logaddexp", "`log(exp(x) + exp(y))`", _logaddexp, domain="float", numerics="bounded")
_binary("xlogy", "`x log(y)`; 0 where `x` is 0, NaN where `y` is", _xlogy, domain="float", numerics="bounded")
_binary("copysign", "`|x|` with the sign of `y`", lambda x, y: np.copysign(x, y), domain="float")
_binary("bitwise_and", "bits set in both", lambda x, y: x & y, domain="bits")
_binary("bitwise_or", "bits set in either", lambda x, y: x | y, domain="bits")
_binary("bitwise_xor", "bits set in one only", lambda x, y: x ^ y, domain="bits")
_binary(
    "shift_left",
    "`x 2^y`; 0 if `y` is negative or not below the width",
    _wrapping(_shift_left),
    "bitwise_left_shift",
    "bits",
    samples=_SHIFTS,
)
_binary(
    "shift_right",
    "`x` shifted by `y` bits, sign kept; an amount outside the width leaves the sign",
    _wrapping(_shift_right),
    "bitwise_right_shift",
    "bits",
    samples=_SHIFTS,
)
_binary("logical_and", "both are not 0", lambda x, y: (x != 0) & (y != 0), domain="any", result="bool")
_binary("logical_or", "one is not 0", lambda x, y: (x != 0) | (y != 0), domain="any", result="bool")
_binary("logical_xor", "exactly one is not 0", lambda x, y: (x != 0) ^ (y != 0), domain="any", result="bool")
_binary("eq", "`x == y`", lambda x, y: x == y, domain="any", result="bool")
_binary("ne", "`x != y`; true for NaN", lambda x, y: x != y, domain="any", result="bool")
_binary("lt", "`x < y`", lambda x, y: x < y, domain="any", result="bool")
_binary("le", "`x <= y`", lambda x, y: x <= y, domain="any", result="bool")
_binary("gt", "`x > y`", lambda x, y: x > y, domain="any", result="bool")
_binary("ge", "`x >= y`", lambda x, y: x >= y, domain="any", result="bool")
_binary(
    "nextafter",
    "the float next to `x` towards `y`; NaN if either is",
    lambda x, y: np.nextafter(x, y),
    domain="float",
    samples=(sample((5,), (5,)), sample(pairs, row), sample(("f64", (3,)), ("f64", (3,)))),
    widen=False,
)


class Div(Op, name="div", category="pointwise"):
    """`x / y`, rounded "none" (floats only), "floor" (towards minus infinity, as Python's `//`) or "trunc".

    Integers: division by zero is a run-time check; the most negative one divided by -1 is itself.
    """

    x: Operand
    y: Operand
    rounding: Attr[str] = "none"
    z: Result

    samples = tuple(
        sample(*s.operands, low=s.low, high=s.high, rounding=r)
        for r in ("none", "floor", "trunc")
        for s in _FLOATS + (_INTS if r != "none" else ())
    ) + (sample(integers(-(2**31), 5), integers(-1, -1), rounding="floor"),)

    @staticmethod
    def infer(x, y, rounding):
        check(rounding in ("none", "floor", "trunc"), f"rounding is 'none', 'floor' or 'trunc', got '{rounding}'")
        check(rounding != "none" or is_float(x.dtype), f"true division of {x.dtype}; cast to a float first")
        return infer_binary(x, y, "number")

    @staticmethod
    def torch(x, y, rounding):
        return pt.div(x, y, rounding_mode=None if rounding == "none" else rounding)

    @staticmethod
    def reference(x, y, rounding):
        v, w = wide(x), wide(y)
        with np.errstate(all="ignore"):
            if rounding == "none":
                return np.asarray(v / w).astype(x.dtype)
            if x.dtype.kind in "iu":
                return _wrapping(_floor if rounding == "floor" else _trunc)(x, y)
            if rounding == "trunc":  # eager truncates the rounded quotient
                return np.trunc(wide(np.asarray(v / w).astype(x.dtype))).astype(x.dtype)
            return np.asarray(np.where(w == 0, v / w, np.floor_divide(v, w))).astype(x.dtype)

    @staticmethod
    def lower(b, x, y, rounding):
        return b.map(lambda s, v, w: s.div(v, w, rounding), x, y)


def _floor(x: Any, y: Any) -> Any:
    x, y = np.broadcast_arrays(x, y)
    return np.array([int(a) // int(b) for a, b in zip(x.flat, y.flat)], object).reshape(x.shape)


def _trunc(x: Any, y: Any) -> Any:
    x, y = np.broadcast_arrays(x, y)
    quotients = [abs(int(a)) // abs(int(b)) * (-1 if (a < 0) != (b < 0) else 1) for a, b in zip(x.flat, y.flat)]
    return np.array(quotients, object).reshape(x.shape)
