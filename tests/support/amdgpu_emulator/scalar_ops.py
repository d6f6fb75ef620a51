"""Scalar instructions: one value per wave, and the condition bit SCC."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .chips import Chip
from .disassembly import Instruction
from .float_ops import fma16, fma32
from .integer_ops import count_bits, first_high, first_low, first_sign, reverse_bits
from .operands import F16, F32, I32, I64, TYPES, U32, U64, parse_operand, scalar_reader, signed
from .registry import ALU, Run, builds, refuse
from .waves import EXEC, Waves

_LOGIC: dict[str, Callable[[Any, Any], Any]] = {
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
_SAVE = {**_LOGIC, "andn1": lambda x, y: ~x & y, "orn1": lambda x, y: ~x | y}
_SAVE |= {"and_not0": _SAVE["andn1"], "or_not0": _SAVE["orn1"]}
_RELATIONS = {"eq": np.equal, "lg": np.not_equal, "gt": np.greater, "ge": np.greater_equal, "lt": np.less}
_RELATIONS |= {"le": np.less_equal, "neq": lambda x, y: ~(x == y), "nlt": lambda x, y: ~(x < y)}
_RELATIONS |= {"ngt": lambda x, y: ~(x > y), "nge": lambda x, y: ~(x >= y), "nle": lambda x, y: ~(x <= y)}
_RELATIONS |= {"o": lambda x, y: (x == x) & (y == y), "u": lambda x, y: (x != x) | (y != y)}


def _write(w: Waves, row: int, value: np.ndarray) -> None:
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
}
for _bits, _t in ((32, U32), (64, U64)):
    _TABLE[f"mov_b{_bits}"] = ((_t,), lambda x: x, False)
    _TABLE[f"not_b{_bits}"] = ((_t,), np.invert, True)
    for _name, _function in _LOGIC.items():
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
        _write(w, to.row, value)

    return run


@builds(r"s_(add|sub|addc|subb)(_co)?(_ci)?_([ui])32|s_addk(_co)?_i32|s_mulk_i32|s_movk_i32|s_cmovk_i32")
def arithmetic(instruction: Instruction, chip: Chip) -> Run:
    """Sums with a carry (u) or an overflow (i) in SCC; forms with a 16-bit immediate."""
    parts = instruction.name.split("_")
    operation, is_signed = parts[1], instruction.name.endswith("i32")
    immediate = operation.endswith("k")
    to = parse_operand(instruction.operands[0])
    texts = [instruction.operands[0], *instruction.operands[1:]] if immediate else instruction.operands[1:]
    if operation in ("movk", "cmovk"):
        texts = texts[1:]
    readers = [scalar_reader(parse_operand(t), I32 if is_signed else U32) for t in texts]
    if immediate:
        value = parse_operand(instruction.operands[-1]).number
        number = np.array([(int(value) + 2**15) % 2**16 - 2**15], I32)
        readers[-1] = lambda w: number
    with_carry = operation in ("addc", "subb") or "ci" in parts
    sign = -1 if operation.startswith("sub") else 1

    def run(w: Waves) -> None:
        values = [r(w).astype(I64) for r in readers]
        if operation == "movk":
            w.write_scalar(to.row, values[0].astype(U32))
            return
        if operation == "mulk":
            w.write_scalar(to.row, (values[0] * values[1]).astype(U32))
            return
        if operation == "cmovk":
            w.write_scalar(to.row, np.where(w.scc, values[0].astype(U32), w.s[to.row]))
            return
        total = values[0] + sign * values[1] + (sign * w.scc if with_carry else 0)
        limits = (-(2**31), 2**31 - 1) if is_signed else (0, 2**32 - 1)
        w.write_scc((total < limits[0]) | (total > limits[1]))
        w.write_scalar(to.row, total.astype(U32))

    return run


@builds(r"v_s_(exp|log|rcp|rsq|sqrt)_f32")
def transcendental(instruction: Instruction, chip: Chip) -> Run:
    """`v_s_exp_f32 s0, s1` (gfx12): the vector instruction of one value."""
    to, operand = (parse_operand(o) for o in instruction.operands[:2])
    source, alu = signed(scalar_reader(operand, U32), operand, F32), ALU[instruction.name.replace("v_s_", "v_")]

    def run(w: Waves) -> None:
        with np.errstate(all="ignore"):
            _write(w, to.row, np.broadcast_to(alu.compute(source(w)), (w.count,)).astype(F32))

    return run


@builds(r"s_(min|max)_[iu]32|s_absdiff_i32")
def choose(instruction: Instruction, chip: Chip) -> Run:
    """The smaller or larger; SCC says whether it is the first."""
    if "absdiff" in instruction.name:
        raise refuse(instruction, "the operation")
    to, dtype = parse_operand(instruction.operands[0]), TYPES[instruction.name[-3:]]
    x, y = (scalar_reader(parse_operand(t), dtype) for t in instruction.operands[1:])
    compare = np.less if "min" in instruction.name else np.greater

    def run(w: Waves) -> None:
        first = compare(a := x(w), b := y(w))
        value = np.where(first, a, b)
        w.write_scc(first)
        w.write_scalar(to.row, value.view(U32))

    return run


@builds(r"s_cselect_b(32|64)|s_cmov_b(32|64)")
def select(instruction: Instruction, chip: Chip) -> Run:
    """The first operand where SCC is set, else the second (`cmov`: the old value)."""
    dtype = TYPES[instruction.name[-3:]]
    to = parse_operand(instruction.operands[0])
    texts = (
        instruction.operands[1:]
        if "cselect" in instruction.name
        else (instruction.operands[1], instruction.operands[0])
    )
    x, y = (scalar_reader(parse_operand(t), dtype) for t in texts)
    return lambda w: _write(w, to.row, np.where(w.scc, x(w), y(w)))


@builds(r"s_cmpk?_(\w+)_([iu](32|64)|f32|f16)")
def compare(instruction: Instruction, chip: Chip) -> Run:
    """A comparison into SCC."""
    _, form, relation, kind = instruction.name.split("_")
    x, y = (scalar_reader(parse_operand(t), TYPES[kind]) for t in instruction.operands)
    if form == "cmpk":
        value = int(parse_operand(instruction.operands[1]).number) % 2**16
        number = np.array([value - (value >> 15 << 16) if kind == "i32" else value], TYPES[kind])
        y = lambda w: number
    test = _RELATIONS[relation]
    return lambda w: w.write_scc(test(x(w), y(w)))


@builds(r"s_bitcmp([01])_b(32|64)")
def test_bit(instruction: Instruction, chip: Chip) -> Run:
    """Whether a bit is 0 or 1, into SCC."""
    dtype, wanted = TYPES[instruction.name[-3:]], instruction.name[8] == "1"
    x, n = (
        scalar_reader(parse_operand(instruction.operands[0]), dtype),
        scalar_reader(parse_operand(instruction.operands[1]), U32),
    )
    bits = np.uint32(8 * dtype.itemsize - 1)
    return lambda w: w.write_scc(((x(w) >> (n(w) & bits).astype(dtype) & dtype.type(1)) == 1) == wanted)


@builds(r"s_bitset([01])_b(32|64)")
def set_bit(instruction: Instruction, chip: Chip) -> Run:
    """One bit of the destination becomes 0 or 1."""
    dtype, to = TYPES[instruction.name[-3:]], parse_operand(instruction.operands[0])
    old, n = scalar_reader(to, dtype), scalar_reader(parse_operand(instruction.operands[1]), U32)
    one, bits = instruction.name[8] == "1", np.uint32(8 * dtype.itemsize - 1)

    def run(w: Waves) -> None:
        bit = dtype.type(1) << (n(w) & bits).astype(dtype)
        _write(w, to.row, old(w) | bit if one else old(w) & ~bit)

    return run


@builds(r"s_(\w+)_(saveexec|wrexec)_b(32|64)")
def save_exec(instruction: Instruction, chip: Chip) -> Run:
    """EXEC becomes an operation of the operand and EXEC; the destination the old EXEC (`wrexec`: the new one)."""
    dtype, operation = TYPES[instruction.name[-3:]], instruction.name[2:].rsplit("_", 2)[0]
    if operation not in _SAVE:
        raise refuse(instruction, "the operation")
    to = parse_operand(instruction.operands[0])
    x = scalar_reader(parse_operand(instruction.operands[1]), dtype)
    exec_ = scalar_reader(parse_operand("exec" if dtype == U64 else "exec_lo"), dtype)

    def run(w: Waves) -> None:
        old = exec_(w).copy()
        new = _SAVE[operation](x(w), old)
        _write(w, to.row, old if "saveexec" in instruction.name else new)
        _write(w, EXEC, new)
        w.write_scc(new != 0)

    return run


@builds(r"s_(wqm|quadmask)_b(32|64)|s_getreg_b32|s_setreg_\w+|s_getpc_b64")
def special(instruction: Instruction, chip: Chip) -> Run:
    """`s_getpc_b64`: the address of the next instruction. Changing a mode is refused."""
    if instruction.name != "s_getpc_b64":
        raise refuse(instruction, "the operation")
    to, offset = parse_operand(instruction.operands[0]), instruction.address + instruction.size
    return lambda w: w.write_scalar64(to.row, np.array(w.code_base + offset, U64))
