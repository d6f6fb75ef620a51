"""exp, exp2, expm1 and the hyperbolic functions, for f32 scalars and vectors.

`x = n ln2 + r` with integer n and |r| <= ln2 / 2; `exp(x) = 2^n (1 + r + r^2 EXP(r))`. n is rounded by adding
1.5 * 2^23, which leaves n in the low bits of the sum: no conversion, and nothing undefined for NaN.

exp is most of the time of a softmax, so what is known of its argument saves operations: 23 of them for any x, 16 for
x <= 0 (`NONPOSITIVE`), 15 where a common factor is allowed besides (`ANY_SCALE`), 14 where the result is neither denormal nor infinite (`exp_inside`).
"""

from __future__ import annotations

from mlir import ir

from .builder import MathBuilder
from .coefficients import EXP, EXP2, EXPM1

_LOG2_E = 1.4426950408889634
_LN2_HIGH, _LN2_LOW = 0.693147182464599609375, -1.904654299957768e-09  # f32(ln 2) and the rest
_ROUNDER = 12582912.0  # 1.5 * 2^23
_ROUNDER_BITS = 0x4B400000
_ONE_PLUS = (1.0, 1.0, *EXP)  # 1 + r + r^2 EXP(r)
NONPOSITIVE = "lamina.nonpositive"  # on a math.exp whose argument is at most 0, or NaN
ANY_SCALE = "lamina.any_scale"  # and on one whose results are only used as ratios: all may be `SCALE` times as large
SCALE = 64  # as a power of two: `exp(-104) 2^64` is no denormal yet, and 2^40 terms of at most 2^64 can be added


def _reduce(m: MathBuilder, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """`(r, n)` with `x = n ln2 + r`; n is an i32. |x| must be below 2^22."""
    t = m.fma(x, _LOG2_E, _ROUNDER)
    n = m.sub(t, _ROUNDER)
    r = m.fma(n, -_LN2_HIGH, x)
    return m.fma(n, -_LN2_LOW, r), m.integer("subi", m.bits(t), _ROUNDER_BITS)


def _power(m: MathBuilder, n: ir.Value) -> ir.Value:
    """`2^n` for -126 <= n <= 127."""
    return m.from_bits(m.integer("shli", m.integer("addi", n, 127), 23))


def _scale(m: MathBuilder, p: ir.Value, n: ir.Value) -> ir.Value:
    """`p 2^n` for -252 <= n <= 254: two steps, so that results may be denormal or infinite."""
    half = m.integer("shrsi", n, 1)
    return m.mul(m.mul(p, _power(m, half)), _power(m, m.integer("subi", n, half)))


def exp(m: MathBuilder, x: ir.Value, halvings: int = 0) -> ir.Value:
    """`exp(x) / 2^halvings`: at most 1.1 ulp."""
    r, n = _reduce(m, m.clamp(x, -104.0, 89.0 + halvings))
    return _scale(m, m.polynomial(r, _ONE_PLUS), m.integer("subi", n, halvings) if halvings else n)


def exp_scaled(m: MathBuilder, x: ir.Value) -> ir.Value:
    """`exp(x) 2^SCALE` for x <= 0, an ordinary number for all of them: at most 1.1 ulp."""
    x = m.select(m.compare("lt", x, -104.0), -104.0, x)
    r, n = _reduce(m, x)
    return m.mul(m.polynomial(r, _ONE_PLUS), _power(m, m.integer("addi", n, SCALE)))


def exp_nonpositive(m: MathBuilder, x: ir.Value) -> ir.Value:
    """`exp(x)` for x <= 0: at most 1.1 ulp. The last product is all that may round to a denormal."""
    return m.mul(exp_scaled(m, x), 2.0**-SCALE)


def exp_inside(m: MathBuilder, x: ir.Value) -> ir.Value:
    """`exp(x)` for -87 <= x <= 88: no clamps, and one step of scaling."""
    r, n = _reduce(m, x)
    return m.mul(m.polynomial(r, _ONE_PLUS), _power(m, n))


def exp_of_negative(m: MathBuilder, x: ir.Value) -> ir.Value:
    """`exp(-x)` for 0 <= x <= 87: at most `1 + x / 22` ulp, since n times the rest of ln 2 is left out."""
    t = m.fma(x, _LOG2_E, _ROUNDER)
    r = m.fma(m.sub(t, _ROUNDER), _LN2_HIGH, m.neg(x))
    return m.mul(m.polynomial(r, _ONE_PLUS), _power(m, m.integer("subi", m.const(_ROUNDER_BITS, m.i32), m.bits(t))))


def exp_times(m: MathBuilder, x: ir.Value, less: ir.Value, factor: ir.Value) -> ir.Value:
    """`exp(x - less) factor` for -104 <= x <= 0 and a tiny `less`, with few roundings."""
    r, n = _reduce(m, x)
    r = m.sub(r, less)
    p = m.fma(m.mul(r, r), m.polynomial(r, EXP), r)
    return _scale(m, m.fma(factor, p, factor), n)


def exp2(m: MathBuilder, x: ir.Value) -> ir.Value:
    """`2^x`: at most 1 ulp."""
    x = m.clamp(x, -151.0, 129.0)
    t = m.add(x, _ROUNDER)
    r = m.sub(x, m.sub(t, _ROUNDER))
    return _scale(m, m.fma(r, m.polynomial(r, EXP2), 1.0), m.integer("subi", m.bits(t), _ROUNDER_BITS))


def _half_expm1(m: MathBuilder, x: ir.Value) -> ir.Value:
    """`(exp(x) - 1) / 2`, accurate near 0: `2^(n-1) (expm1(r) + 1) - 1/2`."""
    r, n = _reduce(m, m.clamp(x, -20.0, 89.5))
    p = m.fma(m.mul(r, r), m.polynomial(r, EXPM1), r)
    s = _power(m, m.integer("subi", n, 2))  # a quarter, so that n = 129 has a power
    quarter = m.fma(s, p, m.sub(s, 0.25))
    return m.add(quarter, quarter)


def _odd(m: MathBuilder, x: ir.Value, result: ir.Value) -> ir.Value:
    """`result` with the sign of `x`, and `x` itself where it is so small that halves would lose bits."""
    return m.select(m.compare("lt", m.abs(x), 2.0**-100), x, m.copysign(result, x))


def expm1(m: MathBuilder, x: ir.Value) -> ir.Value:
    """`exp(x) - 1`: at most 1.7 ulp."""
    u = _half_expm1(m, x)
    return _odd(m, x, m.add(u, u))


def expm1_f64(m: MathBuilder, x: ir.Value) -> ir.Value:
    """`exp(x) - 1` in f64: `2t / (1 - t)` with `t = tanh(x / 2)` near 0, where upstream's lowering cancels; about 3 ulp."""
    t = m.op("math.tanh", [m.mul(x, 0.5)], x.type)
    inner = m.div(m.add(t, t), m.sub(1.0, t))
    outer = m.sub(m.op("math.exp", [x], x.type), 1.0)
    return m.select(m.compare("lt", m.abs(x), 1.0), inner, outer)


def tanh(m: MathBuilder, x: ir.Value) -> ir.Value:
    """`u / (u + 1)` with `u = (exp(2|x|) - 1) / 2`: at most 2 ulp."""
    a = m.clamp(m.abs(x), 0.0, 10.0)
    u = _half_expm1(m, m.add(a, a))
    return _odd(m, x, m.div(u, m.add(u, 1.0)))


def sinh(m: MathBuilder, x: ir.Value) -> ir.Value:
    """`u + u / (2u + 1)` with `u = (exp(|x|) - 1) / 2`: at most 2 ulp."""
    u = _half_expm1(m, m.abs(x))
    ratio = m.div(u, m.add(m.add(u, u), 1.0))
    return _odd(m, x, m.add(u, m.select(m.compare("gt", u, 1e9), 0.5, ratio)))


def cosh(m: MathBuilder, x: ir.Value) -> ir.Value:
    """`e + 1 / (4e)` with `e = exp(|x|) / 2`: at most 1.5 ulp."""
    e = exp(m, m.abs(x), halvings=1)
    return m.add(e, m.div(0.25, e))
