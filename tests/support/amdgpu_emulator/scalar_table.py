"""Scalar instructions that are a function of their sources, one value per wave."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .chips import Chip
from .disassembly import Instruction
from .float_ops import fma16, fma32
from .integer_ops import count_bits, first_high, first_low, first_sign, reverse_bits
from .operands import F16, F32, I32, I64, TYPES, U32, U64, parse_operand, scalar_reader
from .registry import ALU, Run, builds
from .waves import Waves

LOGIC: dict[str, Callable[[Any, Any], Any]] = {
    "and": lambda x, y: x & y,
    "or": lambda x, y: x | y,
    "xor": lambda x, y: x ^ y,
    "nand": lambda x, y: ~(x & y),
    "nor": lambda x, y: ~(x | y),
    "xnor": lambda x, y: ~(x ^ y),
    "andn2": lambda x, y: x & ~y,
    "orn2": lambda x, y: x | ~y,
    "and_not1": lambda x, y: x & ~y,
    "or_not1": lambda x, y: x | ~y,
}


def write(w: Waves, row: int, value: np.ndarray) -> None:
    """Write a result of any width."""
    if value.dtype.itemsize == 8:
        w.write_scalar64(row, value.view(U64))
    elif value.dtype.itemsize == 2:
        w.write_scalar(row, value.view(np.uint16).astype(U32))
    else:
        w.write_scalar(row, value.view(U32))


def _shift(operation: str, bits: int) -> Callable[[Any, Any], Any]:
    function = np.left_shift if operation == "lshl" else np.right_shift
    return lambda x, n: function(x, (n & np.uint32(bits - 1)).astype(x.dtype))


def _field(x: np.ndarray, selector: np.ndarray) -> np.ndarray:
    """Bits offset (5 or 6 low bits of the selector) to offset + width (from bit 16 on)."""
    bits = 8 * x.dtype.itemsize
    offset = (selector & np.uint32(bits - 1)).astype(np.int64)
    width = np.minimum((selector >> np.uint32(16) & np.uint32(127)).astype(np.int64), bits)
    made = []
    for value, o, n in np.broadcast(x, offset, width):
        field = int(value) >> int(o) & ((1 << int(n)) - 1)
        made.append(field - (1 << int(n)) if x.dtype.kind == "i" and n and field >> (int(n) - 1) else field)
    return np.array(made, object).astype(x.dtype) if x.dtype.kind == "u" else np.array(made, x.dtype)


def _pack(low: int, high: int) -> Callable[[Any, Any], Any]:
    """Halves `low` of x and `high` of y."""
    half = np.uint32(0xFFFF)
    return lambda x, y: (y >> np.uint32(16 * high) & half) << np.uint32(16) | (x >> np.uint32(16 * low) & half)


def _first_low64(x: np.ndarray) -> np.ndarray:
    low = first_low(x.astype(U32))
    high = first_low((x >> np.uint64(32)).astype(U32))
    return np.where(x.astype(U32) != 0, low, np.where(high < 32, high + np.uint32(32), high))


def _first_high64(x: np.ndarray) -> np.ndarray:
    high = first_high((x >> np.uint64(32)).astype(U32))
    low = first_high(x.astype(U32))
    return np.where(high < 32, high, np.where(low < 32, low + np.uint32(32), low))


# name: (types of the sources, operation, whether SCC becomes "the result is not 0")
_TABLE: dict[str, tuple[tuple[np.dtype, ...], Callable[..., np.ndarray], bool]] = {
    "mul_i32": ((U32, U32), np.multiply, False),
    "mul_u64": ((U64, U64), np.multiply, False),
    "mul_hi_u32": ((U32, U32), ALU["v_mul_hi_u32"].compute, False),
    "mul_hi_i32": ((I32, I32), ALU["v_mul_hi_i32"].compute, False),
    "add_nc_u64": ((U64, U64), np.add, False),
    "add_u64": ((U64, U64), np.add, False),
    "sub_nc_u64": ((U64, U64), np.subtract, False),
    "sub_u64": ((U64, U64), np.subtract, False),
    "bfe_u32": ((U32, U32), _field, True),
    "bfe_i32": ((I32, U32), _field, True),
    "bfe_u64": ((U64, U32), _field, True),
    "bfe_i64": ((I64, U32), _field, True),
    "bfm_b32": ((U32, U32), ALU["v_bfm_b32"].compute, False),
    "sext_i32_i16": ((U32,), lambda x: x.astype(np.int16).astype(I32), False),
    "sext_i32_i8": ((U32,), lambda x: x.astype(np.int8).astype(I32), False),
    "brev_b32": ((U32,), reverse_bits, False),
    "bcnt1_i32_b32": ((U32,), count_bits, True),
    "bcnt1_i32_b64": ((U64,), lambda x: count_bits(x.view(U32).reshape(-1, 2)).sum(1).astype(U32), True),
    "flbit_i32_b32": ((U32,), first_high, False),
    "clz_i32_u32": ((U32,), first_high, False),
    "flbit_i32": ((I32,), first_sign, False),
    "cls_i32": ((I32,), first_sign, False),
    "ff1_i32_b32": ((U32,), first_low, False),
    "ctz_i32_b32": ((U32,), first_low, False),
    "ff1_i32_b64": ((U64,), _first_low64, False),
    "ctz_i32_b64": ((U64,), _first_low64, False),
    "flbit_i32_b64": ((U64,), _first_high64, False),
    "clz_i32_u64": ((U64,), _first_high64, False),
    "pack_ll_b32_b16": ((U32, U32), _pack(0, 0), False),
    "pack_lh_b32_b16": ((U32, U32), _pack(0, 1), False),
    "pack_hh_b32_b16": ((U32, U32), _pack(1, 1), False),
    "pack_hl_b32_b16": ((U32, U32), _pack(1, 0), False),
    "abs_i32": ((I32,), np.abs, True),
    "absdiff_i32": ((I32, I32), lambda x, y: np.abs(x - y), True),
}
for _bits, _t in ((32, U32), (64, U64)):
    _TABLE[f"mov_b{_bits}"] = ((_t,), lambda x: x, False)
    _TABLE[f"not_b{_bits}"] = ((_t,), np.invert, True)
    for _name, _function in LOGIC.items():
        _TABLE[f"{_name}_b{_bits}"] = ((_t, _t), _function, True)
    for _name, _kind in (("lshl", f"b{_bits}"), ("lshr", f"b{_bits}"), ("ashr", f"i{_bits}")):
        _TABLE[f"{_name}_{_kind}"] = ((TYPES[_kind], U32), _shift(_name, _bits), True)
for _n in (1, 2, 3, 4):
    _TABLE[f"lshl{_n}_add_u32"] = ((U32, U32), lambda x, y, n=_n: (x << np.uint32(n)) + y, True)
for _t, _type, _fma in (("f32", F32, fma32), ("f16", F16, fma16)):
    for _name in ("add", "sub", "mul", "max_num", "min_num", "max", "min", "maximum", "minimum"):
        _TABLE[f"{_name}_{_t}"] = ((_type, _type), ALU[f"v_{_name}_{_t}"].compute, False)
    for _name in ("ceil", "floor", "trunc", "rndne"):
        _TABLE[f"{_name}_{_t}"] = ((_type,), ALU[f"v_{_name}_{_t}"].compute, False)
    for _name in ("fmac", "fmaak", "fmamk"):
        _TABLE[f"{_name}_{_t}"] = ((_type,) * 3, _fma, False)
for _name in ("f32_i32", "f32_u32", "i32_f32", "u32_f32", "f16_f32", "f32_f16"):
    _alu = ALU[f"v_cvt_{_name}"]
    _TABLE[f"cvt_{_name}"] = (_alu.sources, _alu.compute, False)
_TABLE["cvt_hi_f32_f16"] = (
    (U32,),
    lambda x: (x >> np.uint32(16)).astype(np.uint16).view(np.float16).astype(F32),
    False,
)


@builds(r"s_(" + "|".join(_TABLE) + r")")
def table(instruction: Instruction, chip: Chip) -> Run:
    """An operation of the table."""
    types, compute, sets_scc = _TABLE[instruction.name[2:]]
    to = parse_operand(instruction.operands[0])
    texts = list(instruction.operands[1:])
    if len(texts) < len(types):  # fmac
        texts.append(instruction.operands[0])
    readers = [scalar_reader(parse_operand(t), d) for t, d in zip(texts, types)]

    def run(w: Waves) -> None:
        value = compute(*(r(w) for r in readers))
        if sets_scc:
            w.write_scc(value != 0)
        write(w, to.row, value)

    return run
