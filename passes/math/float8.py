"""Floats of 8 bits by bit operations: few machines have instructions for them, and those differ where values overflow.

A format has `t` bits of mantissa and the exponent bias `b` (dialects/dtypes.py has the table):

    |x| = (1 + m / 2^t) 2^(e - b)      e > 0               |x| = m / 2^t 2^(1 - b)      e = 0

Widening moves exponent and mantissa to their places in an f32 and adds the difference of the biases. Rounding does the
reverse with integers, to nearest and ties to even; what becomes subnormal is rounded by an addition in f32 whose last
bit has the weight of the smallest value. Beyond the largest value, as torch (c10/util/Float8_*.h): `f8E4M3FN` saturates,
`f8E5M2` is infinite, the others are NaN.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlir import ir

from .builder import MathBuilder

_F32_BIAS, _F32_MANTISSA, _F32_INFINITY = 127, 23, 0x7F800000


@dataclass(frozen=True)
class Format:
    """`largest` is what rounding gives for what is too large, without the sign; `nan` without it, too."""

    mantissa: int
    bias: int
    largest: int
    nan: int
    unsigned_zero: bool = False  # and 0x80 is the only NaN

    @property
    def shift(self) -> int:
        """Bits of an f32's mantissa that the format has not."""
        return _F32_MANTISSA - self.mantissa

    @property
    def smallest_normal(self) -> int:
        """The bits in f32 of 2^(1 - b)."""
        return (_F32_BIAS + 1 - self.bias) << _F32_MANTISSA


FORMATS = {
    "f8E4M3FN": Format(3, 7, 0x7E, 0x7F),
    "f8E5M2": Format(2, 15, 0x7C, 0x7F),
    "f8E4M3FNUZ": Format(3, 8, 0x80, 0x80, True),
    "f8E5M2FNUZ": Format(2, 16, 0x80, 0x80, True),
}


def float8_to_f32(m: MathBuilder, x: ir.Value, name: str) -> ir.Value:
    """Exact."""
    f, i8 = FORMATS[name], m.like(ir.IntegerType.get_signless(8))
    byte = m.op("arith.extui", (m.op("arith.bitcast", (x,), i8),), m.i32)
    low = m.integer("andi", byte, 0x7F)
    moved = m.integer("shli", low, f.shift)
    normal = m.integer("addi", moved, (_F32_BIAS - f.bias) << _F32_MANTISSA)
    # a subnormal with exponent 1 has a leading 1 too many
    one = m.from_bits(m.const(f.smallest_normal, m.i32))
    subnormal = m.bits(m.sub(m.from_bits(m.integer("addi", moved, f.smallest_normal)), one))
    bits = m.select(m.compare_int("lt", low, 1 << f.mantissa), subnormal, normal)
    if f.unsigned_zero:
        bits = m.select(m.compare_int("eq", byte, f.nan), 0x7FC00000, bits)
    elif f.largest == f.nan - 1:  # no infinity
        bits = m.select(m.compare_int("eq", low, f.nan), 0x7FC00000, bits)
    else:
        bits = m.select(m.compare_int("lt", low, f.largest), bits, m.integer("ori", moved, _F32_INFINITY))
    sign = m.integer("shli", m.integer("andi", byte, 0x80), 24)
    return m.from_bits(m.integer("ori", bits, sign))


def f32_to_float8(m: MathBuilder, x: ir.Value, name: str) -> ir.Value:
    """To nearest, ties to even."""
    f, i8 = FORMATS[name], m.like(ir.IntegerType.get_signless(8))
    bits = m.bits(x)
    size = m.integer("andi", bits, 0x7FFFFFFF)
    odd = m.integer("andi", m.integer("shrui", size, f.shift), 1)
    rounding = (1 << f.shift - 1) - 1 - ((_F32_BIAS - f.bias) << _F32_MANTISSA)
    normal = m.integer("shrui", m.integer("addi", m.integer("addi", size, odd), rounding), f.shift)
    unit = m.const((_F32_BIAS + 1 - f.bias + f.shift) << _F32_MANTISSA, m.i32)
    subnormal = m.integer("subi", m.bits(m.add(m.from_bits(size), m.from_bits(unit))), unit)
    made = m.select(m.compare_int("lt", size, f.smallest_normal), subnormal, m.integer("minui", normal, f.largest))
    made = m.select(m.compare_int("gt", size, _F32_INFINITY), f.nan, made)
    sign = m.integer("andi", m.integer("shrui", bits, 24), 0x80)
    if f.unsigned_zero:
        sign = m.select(m.compare_int("eq", made, 0), 0, sign)
    return m.op(
        "arith.bitcast", (m.op("arith.trunci", (m.integer("ori", made, sign),), i8),), m.like(ir.Type.parse(name))
    )
