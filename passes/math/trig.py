"""sin, cos, tan and their inverses, for f32 scalars and vectors.

The argument is reduced in f64: `x = n pi/2 + r` with pi/2 in two parts (106 bits), which is exact enough for every f32
up to 2^45, and with the bits of 2/pi that matter beyond.
"""

from __future__ import annotations

import math

from mlir import ir

from .builder import MathBuilder
from .coefficients import ASIN, ATAN, COS, SIN, TAN, TWO_OVER_PI

_TWO_OVER_PI = 2.0 / math.pi
_PIO2_HIGH, _PIO2_LOW = math.pi / 2, 6.123233995736766e-17
_ROUNDER = 6755399441055744.0  # 1.5 * 2^52
_PIO2_F32, _PIO2_REST = 1.57079637050628662109375, -4.371139000186241e-08


def _reduce(m: MathBuilder, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """`(r, n mod 2^32)` with `x = n pi/2 + r`: r as f32 in [-pi/4, pi/4], n as i32."""
    wide = m.op("arith.extf", (x,), m.f64)
    t = m.fma(wide, _TWO_OVER_PI, _ROUNDER)
    n = m.sub(t, _ROUNDER)
    r = m.fma(n, -_PIO2_LOW, m.fma(n, -_PIO2_HIGH, wide))
    far_r, far_t = _reduce_far(m, wide)
    far = m.compare("ge", m.abs(wide), 2.0**45)
    r, t = m.select(far, far_r, r), m.select(far, far_t, t)
    bits = m.op("arith.trunci", (m.op("arith.bitcast", (t,), m.i64),), m.i32)
    return m.op("arith.truncf", (r,), m.f32), bits


def _reduce_far(m: MathBuilder, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """The same for |x| >= 2^45, as Payne and Hanek: products with four pieces of 2/pi, each exact, without full turns.

    Returns r as f64, and n plus the rounding constant.
    """
    a = m.abs(x)
    products = []
    for pieces in zip(*TWO_OVER_PI):
        piece = m.const(pieces[0], m.f64)
        for start, value in zip((66, 87, 108), pieces[1:]):
            piece = m.select(m.compare("ge", a, 2.0**start), value, piece)
        products.append(m.mul(x, piece))
    turns = []
    for p in products[:2]:  # the others are less than a turn
        turns.append(m.fma(m.round(m.mul(p, 0.25)), -4.0, p))
    t = m.add(m.add(turns[0], turns[1]), _ROUNDER)
    n = m.sub(t, _ROUNDER)
    fraction = m.add(m.add(m.sub(turns[0], n), turns[1]), m.add(products[2], products[3]))
    return m.mul(fraction, _PIO2_HIGH), t


def _quadrant(m: MathBuilder, r: ir.Value, n: ir.Value) -> ir.Value:
    """`sin(n pi/2 + r)`."""
    t = m.mul(r, r)
    sine = m.fma(m.mul(r, t), m.polynomial(t, SIN), r)
    cosine = m.fma(m.mul(t, t), m.polynomial(t, COS), m.fma(t, -0.5, 1.0))
    odd = m.compare_int("ne", m.integer("andi", n, 1), 0)
    value = m.select(odd, cosine, sine)
    sign = m.integer("shli", m.integer("andi", n, 2), 30)
    return m.from_bits(m.integer("xori", m.bits(value), sign))


def sin(m: MathBuilder, x: ir.Value) -> ir.Value:
    """At most 1.2 ulp."""
    r, n = _reduce(m, x)
    return m.select(m.compare("eq", x, 0.0), x, _quadrant(m, r, n))  # keeps -0


def cos(m: MathBuilder, x: ir.Value) -> ir.Value:
    """At most 1.2 ulp."""
    r, n = _reduce(m, x)
    return _quadrant(m, r, m.integer("addi", n, 1))


def tan(m: MathBuilder, x: ir.Value) -> ir.Value:
    """At most 2 ulp."""
    r, n = _reduce(m, x)
    t = m.mul(r, r)
    tangent = m.fma(m.mul(r, t), m.polynomial(t, TAN), r)
    odd = m.compare_int("ne", m.integer("andi", n, 1), 0)
    result = m.select(odd, m.div(-1.0, tangent), tangent)
    return m.select(m.compare("eq", x, 0.0), x, result)


def _atan01(m: MathBuilder, z: ir.Value) -> ir.Value:
    """atan on [0, 1]."""
    t = m.mul(z, z)
    return m.fma(m.mul(z, t), m.polynomial(t, ATAN), z)


def _from_half_pi(m: MathBuilder, r: ir.Value) -> ir.Value:
    """`pi/2 - r`."""
    return m.sub(_PIO2_F32, m.sub(r, _PIO2_REST))


def atan(m: MathBuilder, x: ir.Value) -> ir.Value:
    """`x + x^3 ATAN(x^2)` for |x| <= 1, else `pi/2 - atan(1/x)`: at most 2 ulp."""
    a = m.abs(x)
    big = m.compare("gt", a, 1.0)
    r = _atan01(m, m.select(big, m.div(1.0, a), a))
    return m.copysign(m.select(big, _from_half_pi(m, r), r), x)


def atan2(m: MathBuilder, y: ir.Value, x: ir.Value) -> ir.Value:
    """The angle of the point (x, y), with IEEE's results for zeros and infinities: at most 2 ulp."""
    a, b = m.abs(y), m.abs(x)
    steep = m.compare("gt", a, b)
    low, high = m.select(steep, b, a), m.select(steep, a, b)
    z = m.div(low, high)
    z = m.select(m.compare("eq", high, 0.0), 0.0, m.select(m.compare("eq", low, math.inf), 1.0, z))
    r = _atan01(m, z)
    r = m.select(steep, _from_half_pi(m, r), r)
    left = m.compare_int("lt", m.bits(x), 0)
    r = m.select(left, m.sub(2 * _PIO2_F32, m.sub(r, 2 * _PIO2_REST)), r)
    nan = m.compare("uno", y, x)
    return m.select(nan, m.const(math.nan), m.copysign(r, y))


def _asin_parts(m: MathBuilder, x: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value]:
    """`(big, z, p)` with `asin(z) = z + p`: z = |x|, or where |x| > 1/2 `z = sqrt((1 - |x|) / 2)`."""
    a = m.abs(x)
    big = m.compare("gt", a, 0.5)
    t = m.select(big, m.mul(m.sub(1.0, a), 0.5), m.mul(a, a))
    root = m.sqrt(t)
    z = m.select(big, root, a)
    p = m.mul(m.mul(z, t), m.polynomial(t, ASIN))
    # what the square root lost, which pi/2 - 2 asin(z) would show
    lost = m.div(m.fma(m.neg(root), root, t), m.add(root, root))
    return big, z, m.add(p, m.select(m.op("arith.andi", (big, m.compare("gt", t, 0.0)), m.i1), lost, m.const(0.0)))


def _minus_twice(m: MathBuilder, high: float, low: float, z: ir.Value, p: ir.Value) -> ir.Value:
    """`high + low - 2 (z + p)`."""
    return m.sub(m.sub(high, m.add(z, z)), m.sub(m.add(p, p), low))


def asin(m: MathBuilder, x: ir.Value) -> ir.Value:
    """At most 2 ulp; NaN for |x| > 1."""
    big, z, p = _asin_parts(m, x)
    return m.copysign(m.select(big, _minus_twice(m, _PIO2_F32, _PIO2_REST, z, p), m.add(z, p)), x)


def acos(m: MathBuilder, x: ir.Value) -> ir.Value:
    """At most 2 ulp; NaN for |x| > 1."""
    big, z, p = _asin_parts(m, x)
    negative = m.compare("lt", x, 0.0)
    near_pi = _minus_twice(m, 2 * _PIO2_F32, 2 * _PIO2_REST, z, p)
    outer = m.select(negative, near_pi, m.add(m.add(z, z), m.add(p, p)))
    return m.select(big, outer, _from_half_pi(m, m.copysign(m.add(z, p), x)))
