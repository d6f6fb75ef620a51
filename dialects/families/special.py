"""Special functions of one float: gamma, inverse error function, modified Bessel functions, scaled erfc.

References work element by element in Python floats, by series and quadrature that share nothing with the lowering.
"""

from __future__ import annotations

import math

from ..lazy import pt, wide
from ..op import Attr, Op, Operand, Result, check, sample
from .unary import elementwise, takes, unary


def _lgamma(x: float) -> float:
    if x <= 0 and x == math.floor(x):
        return math.inf
    return math.lgamma(x)


def _digamma(x: float) -> float:
    """Upward recurrence to 30, then the asymptotic series; reflection for negative `x`."""
    if math.isnan(x) or x == -math.inf or (x < 0 and x == math.floor(x)):
        return math.nan
    if x == 0:
        return math.copysign(math.inf, -x)
    if x == math.inf:
        return x
    if x < 0:
        return _digamma(1 - x) - math.pi / math.tan(math.pi * math.fmod(x, 1))
    total = 0.0
    while x < 30:
        total -= 1 / x
        x += 1
    return total + math.log(x) - 1 / (2 * x) - 1 / (12 * x**2) + 1 / (120 * x**4) - 1 / (252 * x**6)


def _erfinv(x: float) -> float:
    """Bisection on erf, or on erfc for the tail, to the last bit."""
    if math.isnan(x) or abs(x) > 1:
        return math.nan
    if abs(x) == 1:
        return math.copysign(math.inf, x)
    size = abs(x)
    low, high = 0.0, 6.0
    for _ in range(80):
        middle = (low + high) / 2
        below = math.erf(middle) < size if size < 0.5 else math.erfc(middle) > 1 - size
        low, high = (middle, high) if below else (low, middle)
    if size < 1e-4:  # bisection is absolute; the series is relative
        return x * math.sqrt(math.pi) / 2 * (1 + math.pi * x * x / 12)
    return math.copysign(low, x)


def _ndtri(p: float) -> float:
    if math.isnan(p) or not 0 <= p <= 1:
        return math.nan
    if p in (0, 1):
        return -math.inf if p == 0 else math.inf
    if p > 0.5:
        return math.sqrt(2) * _erfinv(2 * p - 1)
    low, high = 0.0, 40.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if math.erfc(middle) > 2 * p else (low, middle)
    return -math.sqrt(2) * low


def _erfcx(x: float) -> float:
    if x > 20:
        return 1 / (x * math.sqrt(math.pi)) * (1 - 1 / (2 * x * x) + 3 / (4 * x**4)) if x < math.inf else 0.0
    return math.exp(x * x) * math.erfc(x)


def _log_ndtr(x: float) -> float:
    if x == -math.inf:
        return x
    if x < -1:
        return math.log(_erfcx(-x / math.sqrt(2)) / 2) - x * x / 2
    return math.log1p(-math.erfc(x / math.sqrt(2)) / 2)


def _bessel_ie(order: int, x: float) -> float:
    """`exp(-|x|) I(x) = 1/pi * integral of exp(|x| (cos a - 1)) cos(order a)`, by the trapezoidal rule."""
    if math.isinf(x):
        return 0.0
    if not abs(x) < 1e4:
        return math.copysign(1 / math.sqrt(2 * math.pi * abs(x)), x if order else 1) if x == x else x
    size, points = abs(x), int(80 + 30 * math.sqrt(abs(x)))
    angles = [(k + 0.5) * math.pi / points for k in range(points)]
    value = math.fsum(math.exp(-2 * size * math.sin(a / 2) ** 2) * math.cos(order * a) for a in angles) / points
    return math.copysign(value, x) if order else value


def _bessel_i(order: int, x: float) -> float:
    return math.exp(abs(x)) * _bessel_ie(order, x) if math.isfinite(x) else math.nan  # as eager's inf * 0


unary("lgamma", "`log |gamma(x)|`; inf at 0, -1, -2, …", elementwise(_lgamma), numerics="order", low=0.1, high=9)
unary("digamma", "the derivative of `log gamma(x)`", elementwise(_digamma), numerics="order", low=0.1, high=9)
unary("erfinv", "the inverse of erf; NaN outside `[-1, 1]`", elementwise(_erfinv), low=-0.99, high=0.99)
unary(
    "ndtri",
    "the `x` whose normal distribution function is `p`",
    elementwise(_ndtri),
    "special.ndtri",
    halves=False,
    numerics="order",
    low=0.01,
    high=0.99,
)
unary(
    "erfcx", "`exp(x^2) erfc(x)`", elementwise(_erfcx), "special.erfcx", halves=False, numerics="order", low=-2, high=9
)
unary(
    "log_ndtr",
    "the logarithm of the normal distribution function",
    elementwise(_log_ndtr),
    "special.log_ndtr",
    halves=False,
    numerics="order",
    low=-9,
    high=3,
)
unary(
    "i0e",
    "`exp(-|x|) I0(x)`, modified Bessel function",
    elementwise(lambda x: _bessel_ie(0, x)),
    "special.i0e",
    numerics="order",
    low=-12,
    high=12,
)
unary(
    "i1e",
    "`exp(-|x|) I1(x)`",
    elementwise(lambda x: _bessel_ie(1, x)),
    "special.i1e",
    numerics="order",
    low=-12,
    high=12,
)
unary(
    "i0",
    "the modified Bessel function of order 0",
    elementwise(lambda x: _bessel_i(0, x)),
    "special.i0",
    numerics="order",
    low=-12,
    high=12,
)
unary(
    "i1",
    "the modified Bessel function of order 1",
    elementwise(lambda x: _bessel_i(1, x)),
    "special.i1",
    numerics="order",
    low=-12,
    high=12,
)


class Polygamma(Op, name="polygamma", category="pointwise"):
    """Derivative number `n >= 1` of digamma: `(-1)^(n+1) n! sum((x + k)^-(n+1))` over `k >= 0`."""

    x: Operand
    n: Attr[int]
    y: Result

    samples = (
        sample((9,), n=1, low=0.1, high=9),
        sample((9,), n=2, low=-5, high=5),
        sample(("f64", (5,)), n=4, low=0.5, high=9),
        sample(lambda rng: _at_poles(), n=3),
    )
    numerics = "order"

    @staticmethod
    def infer(x, n):
        takes(x, "float")
        check(n >= 1, f"order {n}; digamma is order 0")
        return x

    @staticmethod
    def torch(x, n):
        return pt.polygamma(n, x)

    @staticmethod
    def reference(x, n):
        return elementwise(lambda v: _polygamma(n, v))(wide(x)).astype(x.dtype)

    @staticmethod
    def lower(b, x, n):
        return b.polygamma(x, n=n)


def _at_poles():
    import numpy

    return numpy.array([0.0, -1.0, -3.0, 0.5, 1e4], numpy.float32)


def _polygamma(n: int, x: float) -> float:
    """The series itself, with an integral for its tail from 2000 on."""
    sign = 1 if n % 2 else -1
    if x <= 0 and x == math.floor(x):
        return sign * math.inf
    terms = [(x + k) ** -(n + 1) for k in range(2000)]
    w = x + 2000
    tail = w**-n / n + w ** -(n + 1) / 2 + (n + 1) * w ** -(n + 2) / 12
    return sign * math.factorial(n) * (math.fsum(terms) + tail)
