"""Pointwise functions of one tensor, one row each; activations with attributes are in `activation`.

A row `unary("tanh", "hyperbolic tangent of `x`", lambda x: np.tanh(x))` is an op whose lowering is the scalar function of
the same name (passes/linalg/scalar_math.py). `domain` says which dtypes it takes:

    float    floats only; the frontend casts integers first
    number   integers and floats
    any      bool too
    bits     integers and bool

f16 and bf16 are computed wide and rounded once. References compute in float64 and round.
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable
from typing import Any

from ..dtypes import DTYPES
from ..lazy import np, pt, wide
from ..op import Op, Operand, Result, check, sample
from ..record import TensorType

_KINDS = {
    "float": {"float"},
    "number": {"float", "int", "uint"},
    "any": {"float", "int", "uint", "bool"},
    "bits": {"int", "uint", "bool"},
}


def takes(x: TensorType, domain: str) -> None:
    """OpError unless `x`'s dtype belongs to `domain`."""
    check(DTYPES[x.dtype].kind in _KINDS[domain], f"takes {'/'.join(sorted(_KINDS[domain]))} tensors, got {x.dtype}")


def specials(*extra: float) -> Callable[[Any], Any]:
    """An f32 operand of the values where functions of floats go wrong."""
    values = (0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.5, math.inf, -math.inf, math.nan, 1e-40, 1e30, -1e-5, 20.0, *extra)
    return lambda rng: np.array(values, np.float32)


def torch_function(name: str) -> Callable[..., Any]:
    """`torch.<name>`, `torch.special.<name>` or `torch.nn.functional.<name>`, looked up when called."""

    def call(*args: Any, **attributes: Any) -> Any:
        place: Any = pt
        for part in name.split("."):
            place = getattr(place, part)
        return place(*args, **attributes)

    return call


def unary(
    name: str,
    doc: str,
    reference: Callable[[Any], Any],
    torch: str | None = None,
    domain: str = "float",
    result: str | None = None,
    numerics: str = "bounded",
    low: float = -2.0,
    high: float = 2.0,
    halves: bool = True,
    doubles: bool = True,
) -> None:
    """Define one op; `halves` is False where eager has no f16 and bf16, `doubles` where its f64 is not exact to f64."""

    def infer(x: TensorType) -> TensorType:
        takes(x, domain)
        return TensorType(result or x.dtype, x.shape)

    def evaluate(x: Any) -> Any:
        with np.errstate(all="ignore"):
            value = np.asarray(reference(wide(x)))
        return value.astype(np.bool_) if result == "bool" else value.astype(x.dtype)

    def lower(b: Any, x: Any) -> Any:
        return b.map(lambda s, v: getattr(s, name)(v), x, dtypes=result or x.dtype)

    samples = []
    if domain != "bits":
        samples += [sample((3, 5), low=low, high=high), sample(specials())]
        samples += [sample(("f64", (4,)), low=low, high=high)] if doubles else []
        samples += [sample((d, (2, 3)), low=low, high=high) for d in (("bf16", "f16") if halves else ())]
        samples += [sample((), low=low, high=high)]
    if domain != "float":
        samples += [sample((d, (2, 3)), low=-5, high=5) for d in ("i32", "i64", "i8")]
        samples += [sample(lambda rng: np.array([0, 1, 127, 128, 255], np.uint8))]
    if domain in ("any", "bits"):
        samples += [sample(("bool", (4,)))]

    def body(namespace: dict[str, Any]) -> None:
        namespace.update(
            __doc__=doc[0].upper() + doc[1:] + ".",
            __module__=__name__,
            __annotations__={"x": Operand, "y": Result},
            infer=staticmethod(infer),
            reference=staticmethod(evaluate),
            lower=staticmethod(lower),
            torch=staticmethod(torch_function(torch or name)),
            samples=tuple(samples),
            numerics=numerics,
        )

    title = "".join(p.capitalize() for p in name.split("_"))
    types.new_class(title, (Op,), {"name": name, "category": "pointwise"}, body)


def elementwise(function: Callable[[float], float]) -> Callable[[Any], Any]:
    """A function of Python floats over an array; an overflow or domain error is NaN or inf as in C."""

    def safe(v: float) -> float:
        try:
            return function(v)
        except ValueError:
            return math.nan
        except OverflowError:
            return math.inf

    return lambda x: np.array([safe(float(v)) for v in x.ravel()], np.float64).reshape(x.shape)


def sigmoid(x: Any) -> Any:
    """`1 / (1 + exp(-x))` on arrays."""
    return 1 / (1 + np.exp(-x))


def _hard(x: Any) -> Any:
    return np.minimum(np.maximum(x + 3, 0), 6)


unary("neg", "`-x`; integers wrap around", lambda x: np.negative(x), domain="number", numerics="exact")
unary("abs", "`|x|`; the most negative integer stays", lambda x: np.abs(x), domain="number", numerics="exact")
unary(
    "sign",
    "-1, 0 or 1 with the sign of `x`; 0 for NaN",
    lambda x: np.where(x != x, 0, np.sign(x)),
    domain="number",
    numerics="exact",
)
unary("exp", "`e^x`", lambda x: np.exp(x))
unary("exp2", "`2^x`", lambda x: np.exp2(x))
unary("expm1", "`e^x - 1`, accurate near 0", lambda x: np.expm1(x))
unary("log", "natural logarithm of `x`", lambda x: np.log(x), low=0.01, high=5)
unary("log2", "logarithm of `x` to base 2", lambda x: np.log2(x), low=0.01, high=5)
unary("log10", "logarithm of `x` to base 10", lambda x: np.log10(x), low=0.01, high=5)
unary("log1p", "`log(1 + x)`, accurate near 0", lambda x: np.log1p(x), low=-0.9)
unary("sqrt", "square root of `x`; NaN below 0", lambda x: np.sqrt(x), low=0)
unary("rsqrt", "`1 / sqrt(x)`, each rounded", lambda x: 1 / np.sqrt(x), low=0.01)
unary("reciprocal", "`1 / x`", lambda x: 1 / x, low=0.1, numerics="exact")
unary("sin", "sine of `x` radians", lambda x: np.sin(x))
unary("cos", "cosine of `x` radians", lambda x: np.cos(x))
unary("tan", "tangent of `x` radians", lambda x: np.tan(x), low=-1.5, high=1.5)
unary("asin", "inverse sine; NaN outside `[-1, 1]`", lambda x: np.arcsin(x), low=-1, high=1)
unary("acos", "inverse cosine; NaN outside `[-1, 1]`", lambda x: np.arccos(x), low=-1, high=1)
unary("atan", "inverse tangent", lambda x: np.arctan(x))
unary("sinh", "hyperbolic sine", lambda x: np.sinh(x))
unary("cosh", "hyperbolic cosine", lambda x: np.cosh(x))
unary("tanh", "hyperbolic tangent", lambda x: np.tanh(x))
unary("asinh", "inverse hyperbolic sine", lambda x: np.arcsinh(x))
unary("acosh", "inverse hyperbolic cosine; NaN below 1", lambda x: np.arccosh(x), low=1, high=4)
unary("atanh", "inverse hyperbolic tangent; NaN outside `[-1, 1]`", lambda x: np.arctanh(x), low=-0.9, high=0.9)
unary("erf", "error function, `2/sqrt(pi) * integral of exp(-t^2) from 0 to x`", elementwise(math.erf), "special.erf")
unary("erfc", "`1 - erf(x)`, accurate for large `x`", elementwise(math.erfc), "special.erfc")
unary("sigmoid", "`1 / (1 + exp(-x))`", sigmoid)
unary("silu", "`x / (1 + exp(-x))`", lambda x: x / (1 + np.exp(-x)), "nn.functional.silu")
unary("mish", "`x tanh(log(1 + exp(x)))`", lambda x: x * np.tanh(np.log1p(np.exp(x))), "nn.functional.mish")
unary(
    "logsigmoid",
    "`min(x, 0) - log(1 + exp(-|x|))`",
    lambda x: np.minimum(x, 0) - np.log1p(np.exp(-np.abs(x))),
    "nn.functional.logsigmoid",
)
unary("relu", "`max(x, 0)`; NaN stays", lambda x: np.maximum(x, 0), domain="number", numerics="exact")
unary(
    "relu6",
    "`min(max(x, 0), 6)`; NaN stays",
    lambda x: np.minimum(np.maximum(x, 0), 6),
    "nn.functional.relu6",
    high=8,
    numerics="exact",
)
unary(
    "hardswish", "`x min(max(x + 3, 0), 6) / 6`", lambda x: x * _hard(x) / 6, "nn.functional.hardswish", low=-5, high=5
)
unary("hardsigmoid", "`min(max(x + 3, 0), 6) / 6`", lambda x: _hard(x) / 6, "nn.functional.hardsigmoid", low=-5, high=5)
unary(
    "floor",
    "the largest integer not above `x`",
    lambda x: np.floor(x),
    domain="number",
    numerics="exact",
    low=-9,
    high=9,
)
unary(
    "ceil",
    "the smallest integer not below `x`",
    lambda x: np.ceil(x),
    domain="number",
    numerics="exact",
    low=-9,
    high=9,
)
unary("trunc", "`x` without its fraction", lambda x: np.trunc(x), domain="number", numerics="exact", low=-9, high=9)
unary(
    "round",
    "the nearest integer, ties to even",
    lambda x: np.round(x),
    domain="number",
    numerics="exact",
    low=-9,
    high=9,
)
unary("logical_not", "`x == 0`", lambda x: x == 0, domain="any", result="bool", numerics="exact")
unary("bitwise_not", "`x` with all bits flipped (bool: not)", lambda x: np.invert(x), domain="bits", numerics="exact")
unary("isnan", "true for NaN", lambda x: x != x, domain="number", result="bool", numerics="exact")
unary(
    "isinf", "true for both infinities", lambda x: np.abs(x) == np.inf, domain="number", result="bool", numerics="exact"
)
unary(
    "isfinite",
    "true for neither NaN nor infinity",
    lambda x: np.isfinite(x),
    domain="number",
    result="bool",
    numerics="exact",
)
unary(
    "signbit",
    "true for negative numbers and -0.0",
    lambda x: np.signbit(x) if x.dtype.kind == "f" else x < 0,
    domain="number",
    result="bool",
    numerics="exact",
)
