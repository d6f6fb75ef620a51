"""log, what is made of it, and the inverse hyperbolic functions.

log(x) is e log 2 + log m with m in [sqrt(1/2), sqrt(2)).
"""

from __future__ import annotations

import math

from .value import INF, LN2, NAN, Value, polynomial


def split(x: Value) -> tuple[Value, Value]:
    """A positive finite x as e and m, `x = 2^e m` with m in [sqrt(1/2), sqrt(2)); e as a number."""
    small = x.compare("olt", 2.0**-1022)
    bits = small.choose(x * 2.0**54, x).bits()
    e = bits.i64("lshr", 52).i64("sub", 1023).double()
    e = small.choose(e - 54.0, e)
    m = bits.i64("and", (1 << 52) - 1).i64("or", 1023 << 52).as_double()
    upper = m.compare("ogt", math.sqrt(2))
    return upper.choose(e + 1.0, e), upper.choose(m * 0.5, m)


def _log_reduced(m: Value) -> Value:
    """log m = f - f²/2 + s (f²/2 + R(s²)) with f = m - 1, s = f / (2 + f)."""
    f = m - 1.0
    s = f / (f + 2.0)
    z = s * s
    rest = z * polynomial(z, [2 / k for k in range(23, 1, -2)])
    half = f * f * 0.5
    return f - (half - s * (half + rest))


def _log_edges(x: Value, y: Value) -> Value:
    y = x.compare("oeq", 0.0).choose(-INF, y)
    y = x.compare("olt", 0.0).choose(NAN, y)
    return x.compare("ueq", INF).choose(x, y)  # and NaN


def log(x: Value) -> Value:
    e, m = split(x)
    return _log_edges(x, e.fma(LN2[0], e.fma(LN2[1], _log_reduced(m))))


def log2(x: Value) -> Value:
    e, m = split(x)
    return _log_edges(x, _log_reduced(m).fma(1 / LN2[0], e))


def log10(x: Value) -> Value:
    e, m = split(x)
    high, low = 0.3010299956639812, -2.8037281277851704e-18  # log10(2)
    return _log_edges(x, e.fma(high, e.fma(low, _log_reduced(m) * (1 / math.log(10)))))


def log1p(x: Value) -> Value:
    """log(u) + (x - (u - 1)) / u with u = 1 + x, what its rounding lost."""
    u = x + 1.0
    lost = (x - (u - 1.0)) / u
    fits = x.compare("ogt", -1.0).both(x.compare("olt", INF))
    made = log(u) + fits.choose(lost, 0.0)
    return x.compare("oeq", 0.0).choose(x, made)  # -0 too


def asinh(x: Value) -> Value:
    a = x.intrinsic("fabs")
    small = log1p(a + a * a / ((a * a + 1.0).intrinsic("sqrt") + 1.0))
    return a.compare("ogt", 1e8).choose(log(a) + LN2[0], small).intrinsic("copysign", x)


def acosh(x: Value) -> Value:
    t = x - 1.0
    small = log1p(t + (t.fma(t, 2.0 * t)).intrinsic("sqrt"))
    made = x.compare("ogt", 1e8).choose(log(x) + LN2[0], small)
    return x.compare("olt", 1.0).choose(NAN, made)


def atanh(x: Value) -> Value:
    a = x.intrinsic("fabs")
    return (0.5 * log1p(2.0 * a / (1.0 - a))).intrinsic("copysign", x)
