"""Floating-point operations. Each rounds once; the transcendental ones are as if computed exactly.

Real chips are up to 1 ulp off in those. What they all do to denormals is modelled: `v_exp`, `v_log`, `v_rcp` and
`v_rsq` of f32 read and return them as 0 (LLVM's AMDGPU lowering of these functions says so and scales around it).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .operands import F16, F32, F64, I16, I32, TYPES
from .registry import ALU, Alu

_SMALLEST = np.float32(2.0**-126)
_SPLIT = 2.0**27 + 1


def _flush(x: np.ndarray) -> np.ndarray:
    return np.where(np.abs(x) < _SMALLEST, np.copysign(np.float32(0), x), x)


def _wide(function: Callable[[np.ndarray], np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
    """A function of f64 as a function of f32 without denormals."""
    return lambda x: _flush(function(_flush(x).astype(F64)).astype(F32))


def fma32(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
    """x·y + z: the product is exact in f64 (the sum is rounded twice, which shows once in 2²⁹ results)."""
    return (x.astype(F64) * y + z).astype(F32)


def fma16(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
    """x·y + z of f16, exact in f64 but for sums of very different magnitude."""
    return (x.astype(F64) * y + z).astype(F16)


def _halves(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    big = x * _SPLIT
    high = big - (big - x)
    return high, x - high


def fma64(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
    """x·y + z of f64 by Dekker's exact product and Knuth's exact sum of mantissas; denormal results round twice."""
    (xm, xe), (ym, ye) = np.frexp(x), np.frexp(y)
    exponent = xe + ye
    addend = np.ldexp(z, -exponent)
    product = xm * ym
    (xh, xl), (yh, yl) = _halves(xm), _halves(ym)
    error = xl * yl - (((product - xh * yh) - xl * yh) - xh * yl)
    total = product + addend
    back = total - product
    exact = total + (error + ((product - (total - back)) + (addend - back)))
    plain = x * y + z  # infinities, NaNs, and a z beyond comparison
    return np.where(np.isfinite(exact) & np.isfinite(addend) & (exact != 0), np.ldexp(exact, exponent), plain)


def ldexp(x: np.ndarray, exponent: np.ndarray) -> np.ndarray:
    """x·2^exponent, rounded once."""
    return np.ldexp(x.astype(F64), np.clip(exponent, -2200, 2200)).astype(x.dtype)


def median(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
    """The middle of three; with a NaN, the smallest of the others."""
    middle = np.fmax(np.fmin(x, y), np.fmin(np.fmax(x, y), z))
    any_nan = np.isnan(x) | np.isnan(y) | np.isnan(z) if x.dtype.kind == "f" else False
    return np.where(any_nan, np.fmin(np.fmin(x, y), z), middle)


def _revolutions(function: Callable[[np.ndarray], np.ndarray], beyond: float) -> Callable[[np.ndarray], np.ndarray]:
    """A function of 2πx, for |x| ≤ 256 only."""

    def compute(x: np.ndarray) -> np.ndarray:
        turns = x.astype(F64)
        value = function(2 * np.pi * (turns - np.rint(turns)))
        return np.where(np.abs(turns) <= 256, value, np.where(np.isfinite(turns), beyond, np.nan)).astype(x.dtype)

    return compute


def _fract(x: np.ndarray) -> np.ndarray:
    return np.minimum(x - np.floor(x), np.nextafter(x.dtype.type(1), x.dtype.type(0)))


def _frexp_exponent(x: np.ndarray) -> np.ndarray:
    return np.where(np.isfinite(x), np.frexp(x)[1], 0).astype(I16 if x.dtype == F16 else I32)


def _frexp_mantissa(x: np.ndarray) -> np.ndarray:
    return np.where(np.isfinite(x), np.frexp(x)[0], x).astype(x.dtype)


def _dx9(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.where((x == 0) | (y == 0), F32.type(0), x * y)


_UNARY = {
    "rcp": lambda x: 1 / x,
    "rsq": lambda x: 1 / np.sqrt(x),
    "exp": np.exp2,
    "log": np.log2,
}
for _name, _function in _UNARY.items():
    ALU[f"v_{_name}_f32"] = Alu(F32, (F32,), _wide(_function))
    ALU[f"v_{_name}_f16"] = Alu(F16, (F16,), lambda x, f=_function: f(x.astype(F64)).astype(F16))
for _name in ("rcp", "rsq"):
    ALU[f"v_{_name}_f64"] = Alu(F64, (F64,), _UNARY[_name])
ALU["v_rcp_iflag_f32"] = ALU["v_rcp_f32"]
for _type in (F16, F32, F64):
    _t = {F16: "f16", F32: "f32", F64: "f64"}[_type]
    ALU[f"v_sqrt_{_t}"] = Alu(_type, (_type,), np.sqrt)
    for _name, _function in {"rndne": np.rint, "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc}.items():
        ALU[f"v_{_name}_{_t}"] = Alu(_type, (_type,), _function)
    ALU[f"v_fract_{_t}"] = Alu(_type, (_type,), _fract)
    ALU[f"v_frexp_mant_{_t}"] = Alu(_type, (_type,), _frexp_mantissa)
    _exponent = I16 if _type == F16 else I32
    ALU[f"v_frexp_exp_{'i16' if _type == F16 else 'i32'}_{_t}"] = Alu(_exponent, (_type,), _frexp_exponent)
    ALU[f"v_ldexp_{_t}"] = Alu(_type, (_type, _exponent), ldexp)
    _fma = {F16: fma16, F32: fma32, F64: fma64}[_type]
    _binary = {
        "add": np.add,
        "sub": np.subtract,
        "subrev": lambda x, y: y - x,
        "mul": np.multiply,
        "max": np.fmax,
        "min": np.fmin,
        "max_num": np.fmax,
        "min_num": np.fmin,
        "maximum": np.maximum,
        "minimum": np.minimum,
    }
    for _name, _function in _binary.items():
        ALU[f"v_{_name}_{_t}"] = Alu(_type, (_type, _type), _function)
    ALU[f"v_fma_{_t}"] = Alu(_type, (_type,) * 3, _fma, keeps_high=True)
    for _name in ("fmac", "fmaak", "fmamk"):
        ALU[f"v_{_name}_{_t}"] = Alu(_type, (_type,) * 3, _fma, accumulates=_name == "fmac")
for _type in (F16, F32):
    _t = {F16: "f16", F32: "f32"}[_type]
    ALU[f"v_sin_{_t}"] = Alu(_type, (_type,), _revolutions(np.sin, 0.0))
    ALU[f"v_cos_{_t}"] = Alu(_type, (_type,), _revolutions(np.cos, 1.0))
ALU["v_mul_legacy_f32"] = ALU["v_mul_dx9_zero_f32"] = Alu(F32, (F32, F32), _dx9)
ALU["v_mac_f32"] = Alu(F32, (F32,) * 3, lambda x, y, z: x * y + z, accumulates=True)
for _name in ("mad", "madmk", "madak"):
    ALU[f"v_{_name}_f32"] = Alu(F32, (F32,) * 3, lambda x, y, z: x * y + z)
for _t in ("f32", "f16", "i32", "u32", "i16", "u16"):
    _type = TYPES[_t]
    _high, _low = (np.fmax, np.fmin) if _type.kind == "f" else (np.maximum, np.minimum)
    _three = {
        "max3": lambda x, y, z, a=_high: a(a(x, y), z),
        "min3": lambda x, y, z, a=_low: a(a(x, y), z),
        "med3": median,
        "maxmin": lambda x, y, z, a=_high, b=_low: b(a(x, y), z),
        "minmax": lambda x, y, z, a=_high, b=_low: a(b(x, y), z),
    }
    for _name, _function in _three.items():
        ALU[f"v_{_name}_{_t}"] = Alu(_type, (_type,) * 3, _function)
        ALU[f"v_{_name}_num_{_t}"] = ALU[f"v_{_name}_{_t}"]
for _t in ("f32", "f16"):
    _type = TYPES[_t]
    ALU[f"v_maximum3_{_t}"] = Alu(_type, (_type,) * 3, lambda x, y, z: np.maximum(np.maximum(x, y), z))
    ALU[f"v_minimum3_{_t}"] = Alu(_type, (_type,) * 3, lambda x, y, z: np.minimum(np.minimum(x, y), z))
    ALU[f"v_maximumminimum_{_t}"] = Alu(_type, (_type,) * 3, lambda x, y, z: np.minimum(np.maximum(x, y), z))
    ALU[f"v_minimummaximum_{_t}"] = Alu(_type, (_type,) * 3, lambda x, y, z: np.maximum(np.minimum(x, y), z))
