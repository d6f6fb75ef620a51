"""pow, for f32 scalars and vectors: through f64, whose 53 bits hold `y log2(x)` well enough.

`|x| = 2^e m`, `log(m) = 2 atanh(s)` with `s = (m - 1) / (m + 1)`; then `2^(y log2|x|)`, and IEEE's many special cases.
"""

from __future__ import annotations

import math

from mlir import ir

from .builder import MathBuilder
from .coefficients import EXP_F64, LOG_F64

_SQRT_HALF_BITS = 0x3FE6A09E667F3BCD
_ROUNDER = 6755399441055744.0  # 1.5 * 2^52
_ROUNDER_BITS = 0x4338000000000000


def _log2(m: MathBuilder, x: ir.Value) -> ir.Value:
    """log2 of a positive normal f64, to about 2^-40."""
    bits = m.op("arith.bitcast", (x,), m.i64)
    e = m.integer("shrsi", m.integer("subi", bits, _SQRT_HALF_BITS), 52)
    mantissa = m.op("arith.bitcast", (m.integer("subi", bits, m.integer("shli", e, 52)),), m.f64)
    s = m.div(m.sub(mantissa, 1.0), m.add(mantissa, 1.0))
    t = m.mul(s, s)
    atanh = m.fma(m.mul(s, t), m.polynomial(t, LOG_F64), s)
    # e as f64 without a conversion from i64, which AVX2 lacks: through i32
    e32 = m.op("arith.trunci", (e,), m.i32)
    return m.fma(atanh, 2.0 / math.log(2.0), m.op("arith.sitofp", (e32,), m.f64))


def _exp2(m: MathBuilder, x: ir.Value) -> ir.Value:
    """2^x of an f64 in [-1000, 1000], to about 2^-40."""
    t = m.add(x, _ROUNDER)
    r = m.mul(m.sub(x, m.sub(t, _ROUNDER)), math.log(2.0))
    n = m.integer("subi", m.op("arith.bitcast", (t,), m.i64), _ROUNDER_BITS)
    scale = m.op("arith.bitcast", (m.integer("shli", m.integer("addi", n, 1023), 52),), m.f64)
    return m.mul(m.fma(r, m.polynomial(r, EXP_F64), 1.0), scale)


def powf(m: MathBuilder, x: ir.Value, y: ir.Value) -> ir.Value:
    """`x ** y` as C's powf: at most 1 ulp."""
    a = m.abs(x)
    wide = [m.op("arith.extf", (v,), m.f64) for v in (a, y)]
    exponent = m.mul(wide[1], _log2(m, wide[0]))
    exponent = m.select(m.compare("lt", exponent, -200.0), -200.0, exponent)
    exponent = m.select(m.compare("gt", exponent, 200.0), 200.0, exponent)
    result = m.op("arith.truncf", (_exp2(m, exponent),), m.f32)
    # zero and infinity: 0 or infinity by the sign of y
    up = m.compare("gt", y, 0.0)
    result = m.select(m.compare("eq", a, 0.0), m.select(up, 0.0, m.const(math.inf)), result)
    result = m.select(m.compare("eq", a, math.inf), m.select(up, math.inf, m.const(0.0)), result)
    # negative bases: the sign for odd y, NaN for y that is not an integer
    negative = m.compare_int("lt", m.bits(x), 0)
    whole = m.compare("eq", m.round(y), y)
    half = m.mul(y, 0.5)
    odd = m.op("arith.andi", (whole, m.compare("ne", m.round(half), half)), m.i1)
    flip = m.op("arith.andi", (negative, odd), m.i1)
    result = m.select(flip, m.neg(result), result)
    fraction = m.op("arith.andi", (m.compare("lt", x, 0.0), m.compare("ne", m.round(y), y)), m.i1)
    finite = m.compare("lt", a, math.inf)
    result = m.select(m.op("arith.andi", (fraction, finite), m.i1), m.const(math.nan), result)
    result = m.select(m.compare("uno", x, y), m.const(math.nan), result)
    endless = m.op("arith.andi", (m.compare("eq", a, 1.0), m.compare("eq", m.abs(y), math.inf)), m.i1)
    one = m.op("arith.ori", (m.compare("eq", y, 0.0), m.compare("eq", x, 1.0)), m.i1)
    return m.select(m.op("arith.ori", (one, endless), m.i1), m.const(1.0), result)
