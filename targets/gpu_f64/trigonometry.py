"""sin, cos and tan, reduced by multiples of pi/2, and their inverses."""

from __future__ import annotations

import math

from .value import HALF_PI, INF, Value, polynomial


def _reduced(x: Value) -> tuple[Value, Value]:
    """x = n pi/2 + r: sin r and cos r by their series, and n as an i64."""
    n = (x * (2 / math.pi)).intrinsic("rint")
    r = _reduced_by(x, n)
    # of large x too few digits are left for r: some sine it must be all the same, and no infinity
    return r.intrinsic("fabs").compare("ogt", 1.0).choose(0.0, r), n.integer()


def _reduced_by(x: Value, n: Value) -> Value:
    for part in HALF_PI:
        x = (-n).fma(part, x)
    return x


def _sin_series(r: Value) -> Value:
    z = r * r
    p = polynomial(z, [(-1) ** k / math.factorial(2 * k + 1) for k in range(9, 0, -1)])
    return (r * z).fma(p, r)


def _cos_series(r: Value) -> Value:
    z = r * r
    p = polynomial(z, [(-1) ** k / math.factorial(2 * k) for k in range(9, 1, -1)])
    half = z * 0.5
    w = 1.0 - half
    return w + ((1.0 - w - half) + z * z * p)


def _quadrant(r: Value, n: Value) -> Value:
    """sin(r + n pi/2)."""
    made = n.i64("and", 1).test("eq", 1).choose(_cos_series(r), _sin_series(r))
    return n.i64("and", 2).test("eq", 2).choose(-made, made)


def sin(x: Value) -> Value:
    r, n = _reduced(x)
    return x.compare("oeq", 0.0).choose(x, _quadrant(r, n))


def cos(x: Value) -> Value:
    r, n = _reduced(x)
    return _quadrant(r, n.i64("add", 1))


def tan(x: Value) -> Value:
    r, n = _reduced(x)
    s, c = _sin_series(r), _cos_series(r)
    made = n.i64("and", 1).test("eq", 1).choose(-c / s, s / c)
    return x.compare("oeq", 0.0).choose(x, made)


def _atan_positive(a: Value) -> Value:
    """pi/2 - atan(1/a) beyond 1, pi/4 + atan((t - 1) / (t + 1)) beyond tan(pi/8), then the series."""
    beyond = a.compare("ogt", 1.0)
    t = beyond.choose(1.0 / a, a)
    upper = t.compare("ogt", math.tan(math.pi / 8))
    u = upper.choose((t - 1.0) / (t + 1.0), t)
    z = u * u
    p = polynomial(z, [(-1) ** k / (2 * k + 1) for k in range(21, 0, -1)])
    made = (u * z).fma(p, u)
    high, low = HALF_PI[0], HALF_PI[1]
    made = upper.choose(high / 2 + (made + low / 2), made)
    return beyond.choose(high - (made - low), made)


def atan(x: Value) -> Value:
    return _atan_positive(x.intrinsic("fabs")).intrinsic("copysign", x)


def asin(x: Value) -> Value:
    return 2.0 * atan(x / (((1.0 - x) * (x + 1.0)).intrinsic("sqrt") + 1.0))


def acos(x: Value) -> Value:
    return 2.0 * _atan_positive(((1.0 - x) / (x + 1.0)).intrinsic("sqrt"))


def atan2(y: Value, x: Value) -> Value:
    a, b = y.intrinsic("fabs"), x.intrinsic("fabs")
    steep = a.compare("ogt", b)
    small, large = steep.choose(b, a), steep.choose(a, b)
    ratio = large.compare("oeq", 0.0).choose(0.0, small / large)
    ratio = small.compare("oeq", INF).choose(1.0, ratio)
    high, low = HALF_PI[0], HALF_PI[1]
    made = _atan_positive(ratio)
    made = steep.choose(high - (made - low), made)
    left = x.bits().test("slt", 0)
    made = left.choose(2 * high - (made - 2 * low), made).intrinsic("copysign", y)
    return x.compare("uno", y).choose(x + y, made)
