"""The three steps around a division's Newton iteration, as AMD's ISA documents write them.

`v_div_scale` moves a numerator or denominator out of the range where the iteration loses bits, `v_div_fmas` is an fma
that scales back, `v_div_fixup` puts in what special operands give.
"""

from __future__ import annotations

import numpy as np

from .chips import Chip
from .disassembly import Instruction
from .float_ops import fma16, fma64, ldexp
from .operands import BITS, F16, F32, F64, MASK, TYPES, Operand, parse_operand
from .registers import VCC
from .registry import ALU, Alu, Run, builds
from .vector_alu import source

# Per type: bits of the mantissa, of the exponent; the distance at which to scale, and by how much.
_FORMATS = {F32: (23, 8, 96, 64), F64: (52, 11, 768, 128)}


def _exponent(x: np.ndarray) -> np.ndarray:
    mantissa, width, _, _ = _FORMATS[x.dtype]
    bits = x.view(BITS[x.dtype.itemsize])
    return (bits >> bits.dtype.type(mantissa) & bits.dtype.type(2**width - 1)).astype(np.int64)


def div_scale(x: np.ndarray, below: np.ndarray, above: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """x, which is `below` or `above`, scaled for above/below; and whether `v_div_fmas` must scale the quotient.

    Where inverse and quotient are both denormal, the documents scale the denominator up, which cannot be: it would
    overflow, and `v_div_fmas` could not undo it. Down is what gives the right quotient.
    """
    mantissa, _, distance, step = _FORMATS[x.dtype]
    tiny = np.finfo(x.dtype).tiny
    up, down = (ldexp(x, np.array(n, np.int32)) for n in (step, -step))
    is_below = x.view(BITS[x.dtype.itemsize]) == below.view(BITS[x.dtype.itemsize])
    is_above = x.view(BITS[x.dtype.itemsize]) == above.view(BITS[x.dtype.itemsize])
    gap = _exponent(above) - _exponent(below)
    small_below = (np.abs(below) < tiny) & (below != 0)
    small_inverse = np.abs(1 / below.astype(np.longdouble)) < tiny
    small_quotient = np.abs(above.astype(np.longdouble) / below.astype(np.longdouble)) < tiny
    cases = [
        ((below == 0) | (above == 0), np.full_like(x, np.nan), False),
        (gap >= distance, np.where(is_below, up, x), True),
        (small_below, up, False),
        (small_inverse & small_quotient, np.where(is_below, down, x), True),
        (small_inverse, down, False),
        (small_quotient, np.where(is_above, up, x), True),
        (_exponent(above) <= mantissa, up, False),
    ]
    conditions = [np.broadcast_to(c, np.broadcast(x, below, above).shape) for c, _, _ in cases]
    scaled = np.select(conditions, [np.broadcast_to(v, conditions[0].shape) for _, v, _ in cases], x)
    return scaled, np.select(conditions, [np.full(conditions[0].shape, f) for _, _, f in cases], False)


@builds(r"v_div_scale_(f32|f64)")
def scale(instruction: Instruction, chip: Chip) -> Run:
    """`v_div_scale_f32 d, scaled?, x, denominator, numerator`."""
    dtype = TYPES[instruction.name[-3:]]
    to, flag = parse_operand(instruction.operands[0]), parse_operand(instruction.operands[1])
    x, below, above = (source(instruction, i, parse_operand(instruction.operands[2 + i]), dtype) for i in range(3))

    def run(w) -> None:
        value, scaled = div_scale(*(np.broadcast_to(r(w), w.mask.shape) for r in (x, below, above)))
        w.write_lanes(flag.row, scaled)
        if dtype == F64:
            w.write_vector64(to.row, value.view(np.uint64))
        else:
            w.write_vector(to.row, value.view(np.uint32))

    return run


@builds(r"v_div_fmas_(f32|f64)")
def fmas(instruction: Instruction, chip: Chip) -> Run:
    """`v_div_fmas_f32 d, x, y, z`: x·y + z, times 2^±64 (f64: 2^±128) where VCC says so."""
    dtype = TYPES[instruction.name[-3:]]
    to = parse_operand(instruction.operands[0])
    x, y, z = (source(instruction, i, parse_operand(instruction.operands[1 + i]), dtype) for i in range(3))
    flag = source(instruction, 3, Operand("vcc", "s", VCC), MASK)
    step, middle = (64, 127) if dtype == F32 else (128, 1023)

    def run(w) -> None:
        a, b, c = x(w), y(w), z(w)
        shift = np.where(flag(w), np.where(_exponent(c) > middle, step, -step), 0)
        if dtype == F64:
            w.write_vector64(to.row, ldexp(fma64(a, b, c), shift).view(np.uint64))
        else:  # scaled before it is rounded
            w.write_vector(to.row, np.ldexp(a.astype(F64) * b + c, shift).astype(F32).view(np.uint32))

    return run


def fixup(quotient: np.ndarray, below: np.ndarray, above: np.ndarray) -> np.ndarray:
    """above/below where an operand is 0, infinite or NaN; else the quotient with the right sign."""
    sign = np.where(np.signbit(below) ^ np.signbit(above), -1, 1).astype(quotient.dtype)
    nan = np.isnan(below) | np.isnan(above) | ((above == 0) & (below == 0)) | (np.isinf(above) & np.isinf(below))
    infinite, zero = (below == 0) | np.isinf(above), np.isinf(below) | (above == 0)
    special = np.where(infinite, np.inf, 0.0).astype(quotient.dtype) * 1
    value = np.where(infinite | zero, special, np.abs(quotient))
    return np.where(nan, quotient.dtype.type(np.nan), np.copysign(value, sign))


for _type, _t in ((F16, "f16"), (F32, "f32"), (F64, "f64")):
    ALU[f"v_div_fixup_{_t}"] = Alu(_type, (_type,) * 3, fixup, keeps_high=True)
ALU["v_mad_f16"] = Alu(F16, (F16,) * 3, fma16, keeps_high=True)
