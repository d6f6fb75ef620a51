"""Conversions between types. To integers they saturate, and a NaN gives 0; to narrower floats they round to even."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np

from .chips import Chip
from .disassembly import Instruction
from .operands import F16, F32, F64, I16, I32, TYPES, U8, U16, U32, U64, parse_operand, vector_reader
from .registry import ALU, Alu, Run, builds
from .vector_alu import flags, source

_FP8 = {True: (ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2fnuz)}
_FP8[False] = (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2)


def to_integer(dtype: np.dtype, round_: Callable[[np.ndarray], np.ndarray] = np.trunc) -> Callable[..., np.ndarray]:
    """Round to an integer type, saturating."""
    limits = np.iinfo(dtype)

    def compute(x: np.ndarray) -> np.ndarray:
        value = np.nan_to_num(round_(x.astype(F64)), nan=0.0, posinf=limits.max, neginf=limits.min)
        return np.clip(value, limits.min, limits.max).astype(dtype)

    return compute


def fp8_type(chip: Chip, brain: bool) -> np.dtype:
    """The 8-bit float of a chip, e4m3 or (`brain`) e5m2: gfx942 has the formats without infinity and -0."""
    return np.dtype(_FP8[chip.generation == 9][brain])


def _toward_zero(x: np.ndarray) -> np.ndarray:
    """f32 to f16, rounded toward zero."""
    near = x.astype(F16)
    beyond = np.abs(near.astype(F32)) > np.abs(x)
    return np.where(beyond, np.nextafter(near, F16.type(0)), near)


def _pack(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    return high.view(U16).astype(U32) << np.uint32(16) | low.view(U16)


def _saturate(narrow: np.dtype) -> Callable[..., np.ndarray]:
    limits = np.iinfo(narrow)
    return lambda x, y: _pack(*(np.clip(v, limits.min, limits.max).astype(narrow) for v in (x, y)))


for _from in ("f16", "f32", "f64"):
    for _to in ("i16", "u16", "i32", "u32"):
        if ("16" in _to) == (_from == "f16"):
            ALU[f"v_cvt_{_to}_{_from}"] = Alu(TYPES[_to], (TYPES[_from],), to_integer(TYPES[_to]))
            ALU[f"v_cvt_{_from}_{_to}"] = Alu(TYPES[_from], (TYPES[_to],), lambda x, t=TYPES[_from]: x.astype(t))
    for _to in ("f16", "f32", "f64"):
        if {_from, _to} in ({"f16", "f32"}, {"f32", "f64"}):
            ALU[f"v_cvt_{_to}_{_from}"] = Alu(TYPES[_to], (TYPES[_from],), lambda x, t=TYPES[_to]: x.astype(t))
for _name, _round in {"rpi": lambda x: np.floor(x + 0.5), "flr": np.floor, "floor": np.floor}.items():
    ALU[f"v_cvt_{_name}_i32_f32"] = Alu(I32, (F32,), to_integer(I32, _round))
for _i in range(4):
    _byte = lambda x, n=8 * _i: (x >> np.uint32(n) & np.uint32(255)).astype(F32)
    ALU[f"v_cvt_f32_ubyte{_i}"] = Alu(F32, (U32,), _byte)
ALU["v_cvt_i32_i16"] = Alu(I32, (I16,), lambda x: x.astype(I32))
ALU["v_cvt_u32_u16"] = Alu(U32, (U16,), lambda x: x.astype(U32))
for _name in ("v_cvt_pkrtz_f16_f32", "v_cvt_pk_rtz_f16_f32"):
    ALU[_name] = Alu(U32, (F32, F32), lambda x, y: _pack(_toward_zero(x), _toward_zero(y)))
ALU["v_cvt_pk_i16_i32"] = Alu(U32, (I32, I32), _saturate(I16))
ALU["v_cvt_pk_u16_u32"] = Alu(U32, (U32, U32), _saturate(U16))
for _t in ("i16", "u16"):
    _each = to_integer(TYPES[_t])
    ALU[f"v_cvt_pk_{_t}_f32"] = Alu(U32, (F32, F32), lambda x, y, f=_each: _pack(f(x), f(y)))


@builds(r"v_cvt_pk_(fp8|bf8)_f32")
def to_fp8(instruction: Instruction, chip: Chip) -> Run:
    """Two f32 to 8-bit floats, in the half of the destination that op_sel names; the other half stays."""
    to = parse_operand(instruction.operands[0])
    x, y = (source(instruction, i, parse_operand(instruction.operands[1 + i]), F32) for i in (0, 1))
    dtype = fp8_type(chip, "bf8" in instruction.name)
    largest = float(ml_dtypes.finfo(dtype).max)
    high = to.half if to.half is not None else flags(instruction, "op_sel", [0] * 3)[2]
    keep, shift = np.uint32(0xFFFF if high else 0xFFFF0000), np.uint32(16 if high else 0)

    def bits(value: np.ndarray) -> np.ndarray:
        near = value.astype(dtype)
        saturated = np.where(np.isfinite(value), np.clip(value, -largest, largest), value).astype(dtype)
        return np.where(np.isfinite(near.astype(F32)), near, saturated).astype(dtype).view(U8).astype(U32)

    def run(w) -> None:
        pair = bits(x(w)) | bits(y(w)) << np.uint32(8)
        w.write_vector(to.row, w.v[to.row] & keep | pair << shift)

    return run


@builds(r"v_cvt_(pk_)?f32_(fp8|bf8)")
def from_fp8(instruction: Instruction, chip: Chip) -> Run:
    """One 8-bit float (a byte that SDWA or op_sel names), or two, to f32."""
    to, operand = parse_operand(instruction.operands[0]), parse_operand(instruction.operands[1])
    dtype = fp8_type(chip, "bf8" in instruction.name)
    word = vector_reader(operand if operand.half is None else operand.at(0), U32)
    selected = instruction.modifiers.get("src0_sel", "")
    op_sel = flags(instruction, "op_sel", [0, 0])
    if "byte_sel" in instruction.modifiers:
        first = int(instruction.modifiers["byte_sel"])
    elif selected.startswith("BYTE_"):
        first = int(selected[5:])
    elif "pk" in instruction.name:
        first = 2 if selected == "WORD_1" or operand.half or op_sel[0] else 0
    else:
        first = 2 * op_sel[1] + op_sel[0]

    def value(w, byte: int) -> np.ndarray:
        return (word(w) >> np.uint32(8 * byte)).astype(U8).view(dtype).astype(F32).view(U32)

    def run(w) -> None:
        if "pk" not in instruction.name:
            w.write_vector(to.row, value(w, first))
            return
        w.write_vector64(to.row, value(w, first + 1).astype(U64) << np.uint64(32) | value(w, first))

    return run
