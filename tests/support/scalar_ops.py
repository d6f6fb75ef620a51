"""Scalar ops of `arith` and `math` as numpy functions of whole arrays, and MLIR's element types as numpy's."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
from mlir import ir

FLOATS = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": ml_dtypes.bfloat16}


def dtype_of(type: ir.Type) -> np.dtype:
    """The numpy dtype of a scalar or vector type's elements."""
    if isinstance(type, ir.VectorType):
        type = ir.VectorType(type).element_type
    text = str(type)
    if text in FLOATS:
        return np.dtype(FLOATS[text])
    if text == "index":
        return np.dtype(np.int64)
    width = ir.IntegerType(type).width
    return np.dtype(bool) if width == 1 else np.dtype(f"int{width}")


def _unsigned(x: np.ndarray) -> np.ndarray:
    return x if x.dtype == bool else x.view(x.dtype.str.replace("i", "u"))


def _trunc_div(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    b = np.where(b == 0, 1, b).astype(a.dtype)
    quotient = a // b
    return quotient + ((quotient * b != a) & ((a < 0) != (b < 0)))


_INTEGER_TESTS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
_ORDERED = {1: "equal", 2: "greater", 3: "greater_equal", 4: "less", 5: "less_equal", 6: "not_equal"}


def _cmpf(predicate: int, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    nan = np.isnan(a) | np.isnan(b)
    if predicate in (7, 14):
        return nan if predicate == 14 else ~nan
    if predicate in _ORDERED:
        return getattr(np, _ORDERED[predicate])(a, b) & ~nan
    return getattr(np, _ORDERED[predicate - 7])(a, b) | nan


def scalar(op: ir.Operation, xs: list[np.ndarray]) -> np.ndarray:
    """The result of an arith or math op on arrays."""
    name = op.name.partition(".")[2]
    x = xs[0]
    if name == "cmpi":
        predicate = ir.IntegerAttr(op.attributes["predicate"]).value
        a, b = xs if predicate < 6 else map(_unsigned, xs)
        return getattr(np, _INTEGER_TESTS[predicate if predicate < 6 else predicate - 4])(a, b)
    if name == "cmpf":
        return _cmpf(ir.IntegerAttr(op.attributes["predicate"]).value, *xs)
    if name == "select":
        return np.where(*xs)
    if name == "bitcast":
        return x.view(dtype_of(op.results[0].type))
    if name in ("extui", "uitofp", "index_castui"):
        return _unsigned(x)
    if name in ("fptosi", "fptoui"):
        return np.where(np.isfinite(x), np.trunc(x), 0).astype(np.int64 if name == "fptosi" else np.uint64)
    if name in ("extf", "truncf", "extsi", "trunci", "sitofp", "index_cast"):
        return (
            x & 1 == 1
            if name == "trunci" and str(op.results[0].type).endswith("i1")
            else (-x.astype(np.int8) if x.dtype == bool and name in ("extsi", "sitofp") else x)
        )
    if name in FUNCTIONS:
        return FUNCTIONS[name](*xs)
    raise NotImplementedError(f"the simulator does not know {op.name}")


def _erf(x: np.ndarray) -> np.ndarray:
    return np.vectorize(math.erf, otypes=[float])(x)


def _wide(f: Any) -> Any:
    """Computed in f64 and rounded: the simulator is exact where the device has a few ulp."""
    return lambda *xs: np.asarray(f(*(x.astype(np.float64) for x in xs))).astype(xs[0].dtype)


def _shift(f: Any) -> Any:
    return lambda a, b: f(a, np.clip(b, 0, 8 * a.dtype.itemsize - 1))


def _wide_bits(x: np.ndarray) -> np.ndarray:
    return _unsigned(x).astype(np.uint64)


FUNCTIONS: dict[str, Any] = {
    "addi": np.add, "subi": np.subtract, "muli": np.multiply, "addf": np.add, "subf": np.subtract, "mulf": np.multiply,
    "divf": np.divide, "negf": np.negative, "andi": np.bitwise_and, "ori": np.bitwise_or, "xori": np.bitwise_xor,
    "divsi": _trunc_div, "remsi": lambda a, b: a - b * _trunc_div(a, b),
    "divui": lambda a, b: _unsigned(a) // np.maximum(_unsigned(b), 1),
    "remui": lambda a, b: _unsigned(a) % np.maximum(_unsigned(b), 1),
    "floordivsi": lambda a, b: np.floor_divide(a, np.where(b == 0, 1, b)),
    "shli": _shift(np.left_shift), "shrsi": _shift(np.right_shift),
    "shrui": _shift(lambda a, b: _unsigned(a) >> _unsigned(b)),
    "intr.fshr": lambda high, low, n: (_wide_bits(high) << 32 | _wide_bits(low)) >> (_unsigned(n) % 32).astype(np.uint64),
    "intr.ctpop": lambda x: sum(_unsigned(x) >> i & 1 for i in range(8 * x.itemsize)),
    "maxsi": np.maximum, "minsi": np.minimum,
    "maxui": lambda a, b: np.maximum(_unsigned(a), _unsigned(b)),
    "minui": lambda a, b: np.minimum(_unsigned(a), _unsigned(b)),
    "maximumf": np.maximum, "minimumf": np.minimum, "maxnumf": np.fmax, "minnumf": np.fmin, "remf": np.fmod,
    "absf": np.abs, "absi": np.abs, "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "roundeven": np.rint,
    "round": lambda x: np.trunc(x + np.copysign(0.5, x)), "copysign": np.copysign, "sqrt": np.sqrt,
    "fma": _wide(lambda a, b, c: a * b + c), "rsqrt": _wide(lambda x: 1 / np.sqrt(x)),
    "isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite,
    **{f: _wide(getattr(np, f)) for f in ("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "sinh", "cosh", "tanh")},
    **{f: _wide(getattr(np, "arc" + f[1:])) for f in ("asin", "acos", "atan", "asinh", "acosh", "atanh", "atan2")},
    "powf": _wide(np.power), "erf": _wide(_erf), "erfc": _wide(lambda x: np.vectorize(math.erfc, otypes=[float])(x)),
}  # fmt: skip

INTRINSICS: dict[str, Any] = {
    "llvm.nvvm.ex2.approx.ftz.f": FUNCTIONS["exp2"],
    "llvm.nvvm.lg2.approx.ftz.f": FUNCTIONS["log2"],
    "llvm.nvvm.rcp.approx.ftz.f": _wide(lambda x: 1 / x),
    "llvm.nvvm.div.full": _wide(lambda a, b: a / b),
}
