"""exp, what is made of it, and its near relatives.

exp(x) is 2^n exp(r) with a whole n and |r| up to 0.35, which Taylor's series is for.
"""

from __future__ import annotations

import math

from .value import LN2, Value, polynomial


def _scaled(x: Value, n: Value) -> Value:
    """`x * 2^n` for an i64 n of -2000 .. 2000, in two steps: the result may be subnormal."""
    half = n.i64("ashr", 1)
    for part in (half, n.i64("sub", half)):
        x = x * part.i64("add", 1023).i64("shl", 52).as_double()
    return x


def _exp_reduced(r: Value) -> Value:
    """exp(r) for |r| up to 0.35, by r^13 / 13! and below."""
    return polynomial(r, [1 / math.factorial(k) for k in range(13, -1, -1)])


def exp(x: Value, low: Value | None = None) -> Value:
    """exp(x + low): 2^n exp(r) with n = round(x / ln 2)."""
    x = x.compare("ogt", 750.0).choose(750.0, x)  # NaN passes
    x = x.compare("olt", -750.0).choose(-750.0, x)
    n = (x * (1 / LN2[0])).intrinsic("rint")
    r = (-n).fma(LN2[1], (-n).fma(LN2[0], x))
    return _scaled(_exp_reduced(r if low is None else r + low), n.integer())


def exp2(x: Value) -> Value:
    x = x.compare("ogt", 1100.0).choose(1100.0, x)
    x = x.compare("olt", -1100.0).choose(-1100.0, x)
    n = x.intrinsic("rint")
    f = x - n
    return _scaled(_exp_reduced(f.fma(LN2[0], f * LN2[1])), n.integer())


def expm1(x: Value) -> Value:
    """By x^18 / 18! and below near 0, where exp(x) - 1 would cancel."""
    p = polynomial(x, [1 / math.factorial(k) for k in range(18, 1, -1)])
    near = x.intrinsic("fabs").compare("olt", 0.5)
    return near.choose((x * x).fma(p, x), exp(x) - 1.0)


def sinh(x: Value) -> Value:
    a = x.intrinsic("fabs")
    e, half = expm1(a), exp(a * 0.5)
    large = a.compare("ogt", 22.0).choose(0.5 * half * half, 0.5 * (e + e / (e + 1.0)))
    return large.intrinsic("copysign", x)


def cosh(x: Value) -> Value:
    a = x.intrinsic("fabs")
    e, half = exp(a), exp(a * 0.5)
    return a.compare("ogt", 22.0).choose(0.5 * half * half, 0.5 * e + 0.5 / e)


def tanh(x: Value) -> Value:
    a = x.intrinsic("fabs")
    a = a.compare("ogt", 22.0).choose(22.0, a)
    e = expm1(2.0 * a)
    return (e / (e + 2.0)).intrinsic("copysign", x)
