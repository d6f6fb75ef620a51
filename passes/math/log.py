"""log, log2, log10, log1p and the inverse hyperbolic functions, for f32 scalars and vectors.

`x = 2^e (1 + f)` with `sqrt(1/2) <= 1 + f < sqrt(2)`; `log(1 + f) = f - f^2 / 2 + f^3 LOG(f)`.
"""

from __future__ import annotations

import math

from mlir import ir

from .builder import MathBuilder
from .coefficients import LOG

_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440054690583e-4  # the first has 9 bits: e * high is exact
_SQRT_HALF_BITS = 0x3F3504F3
_LN2 = math.log(2.0)


def _split(m: MathBuilder, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """`(e, f)` with `x = 2^e (1 + f)`, for positive finite x, denormals too."""
    small = m.compare("lt", x, 2.0**-126)
    bits = m.bits(m.select(small, m.mul(x, 2.0**23), x))
    e = m.integer("shrsi", m.integer("subi", bits, _SQRT_HALF_BITS), 23)
    mantissa = m.from_bits(m.integer("subi", bits, m.integer("shli", e, 23)))
    return m.add(m.to_float(e), m.select(small, -23.0, m.const(0.0))), m.sub(mantissa, 1.0)


def _tail(m: MathBuilder, f: ir.Value) -> ir.Value:
    """`log(1 + f) - f`."""
    return m.mul(m.mul(f, f), m.fma(f, m.polynomial(f, LOG), -0.5))


def _specials(m: MathBuilder, x: ir.Value, result: ir.Value) -> ir.Value:
    """NaN below 0, -inf at 0, and infinity and NaN themselves."""
    result = m.select(m.compare("gt", x, 0.0), result, m.select(m.compare("eq", x, 0.0), -math.inf, m.const(math.nan)))
    return m.select(m.compare("lt", x, math.inf), result, x)


def _log(m: MathBuilder, x: ir.Value, more: ir.Value | None = None) -> ir.Value:
    """`log(x) + more` for positive finite x."""
    e, f = _split(m, x)
    low = m.fma(e, _LN2_LOW, _tail(m, f))
    low = m.add(low, more) if more is not None else low
    return m.fma(e, _LN2_HIGH, m.add(f, low))


def log(m: MathBuilder, x: ir.Value) -> ir.Value:
    """The natural logarithm: at most 1 ulp."""
    return _specials(m, x, _log(m, x))


def _log_base(m: MathBuilder, x: ir.Value, factor: tuple[float, float], two: tuple[float, float]) -> ir.Value:
    """`log(x) factor`; `two` is the result for 2. Pairs are a value of few bits and the rest."""
    e, f = _split(m, x)
    tail = _tail(m, f)
    low = m.fma(tail, factor[0], m.mul(m.add(f, tail), factor[1]))
    low = m.fma(e, two[1], low) if two[1] else low
    return _specials(m, x, m.fma(e, two[0], m.fma(f, factor[0], low)))


def log2(m: MathBuilder, x: ir.Value) -> ir.Value:
    """The logarithm to base 2: at most 1.2 ulp."""
    return _log_base(m, x, (1.4426950216293335, 1.925963033500895e-08), (1.0, 0.0))


def log10(m: MathBuilder, x: ir.Value) -> ir.Value:
    """The logarithm to base 10: at most 1.2 ulp."""
    return _log_base(m, x, (0.4342944920063019, -1.0103050118726002e-08), (0.301025390625, 4.605038981195214e-06))


def log1p(m: MathBuilder, x: ir.Value) -> ir.Value:
    """`log(1 + x)`, accurate near 0: `log(u) + (what the sum u = 1 + x lost) / u`; at most 1.5 ulp."""
    u = m.add(x, 1.0)
    b = m.sub(u, 1.0)
    lost = m.add(m.sub(1.0, m.sub(u, b)), m.sub(x, b))
    result = _log(m, u, m.div(lost, u))
    result = m.select(
        m.compare("gt", x, -1.0), result, m.select(m.compare("eq", x, -1.0), -math.inf, m.const(math.nan))
    )
    result = m.select(m.compare("lt", x, math.inf), result, x)
    return m.select(m.compare("eq", x, 0.0), x, result)  # keeps -0


def _big(m: MathBuilder, a: ir.Value, small: ir.Value) -> ir.Value:
    """`log1p(small)`, or `log(2a)` where `a` is so large that `small` overflows."""
    big = m.compare("gt", a, 1e10)
    return m.add(log1p(m, m.select(big, a, small)), m.select(big, _LN2, m.const(0.0)))


def asinh(m: MathBuilder, x: ir.Value) -> ir.Value:
    """`log1p(a + a^2 / (1 + sqrt(1 + a^2)))`, a = |x|: at most 2 ulp."""
    a = m.abs(x)
    square = m.mul(a, a)
    inner = m.add(a, m.div(square, m.add(m.sqrt(m.add(square, 1.0)), 1.0)))
    return m.copysign(_big(m, a, inner), x)


def acosh(m: MathBuilder, x: ir.Value) -> ir.Value:
    """`log1p(t + sqrt(2t + t^2))`, t = x - 1; NaN below 1: at most 2 ulp."""
    t = m.sub(x, 1.0)
    result = _big(m, x, m.add(t, m.sqrt(m.fma(t, t, m.add(t, t)))))
    return m.select(m.compare("lt", x, 1.0), m.const(math.nan), result)  # t^2 may be inf far below


def atanh(m: MathBuilder, x: ir.Value) -> ir.Value:
    """`log1p(2a / (1 - a)) / 2`, a = |x|; NaN above 1: at most 2 ulp."""
    a = m.abs(x)
    return m.copysign(m.mul(log1p(m, m.div(m.add(a, a), m.sub(1.0, a))), 0.5), x)
