"""Operations on pairs: two halves of a register, two registers, or a mix of f16 and f32."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from .chips import Chip
from .disassembly import Instruction
from .float_ops import fma16, fma32
from .operands import F16, F32, I32, TYPES, U8, U16, U32, Operand, Reader, parse_operand, vector_reader
from .registry import ALU, Alu, Run, builds, refuse
from .vector_alu import flags

_BF16 = np.dtype(ml_dtypes.bfloat16)
_FLOATS = {"add": np.add, "mul": np.multiply, "max": np.fmax, "min": np.fmin, "max_num": np.fmax, "min_num": np.fmin}
_FLOATS |= {"maximum": np.maximum, "minimum": np.minimum}
_INTEGERS = {"add": np.add, "sub": np.subtract, "mul_lo": np.multiply, "max": np.maximum, "min": np.minimum}
_INTEGERS |= {"lshlrev": lambda n, x: x << (n & n.dtype.type(15)), "lshrrev": lambda n, x: x >> (n & n.dtype.type(15))}
_INTEGERS |= {"ashrrev": lambda n, x: x >> (n & n.dtype.type(15)), "mad": lambda x, y, z: x * y + z}


def _half(operand: Operand, dtype: np.dtype, high: bool, negative: bool) -> Reader:
    """One half of a source. An inline constant has its value in the low half (an integer is 32 bits wide)."""
    if operand.kind == "number" and isinstance(operand.number, int):
        word = vector_reader(operand, U32)
        reader: Reader = lambda w: (word(w) >> np.uint32(16 * high)).astype(U16).view(dtype)
    elif operand.kind == "number" and high:
        reader = lambda w: np.zeros((1, 1), dtype)
    else:
        reader = vector_reader(operand, dtype, high)
    return (lambda w: -reader(w)) if negative else reader


@builds(r"v_pk_(\w+)_(f16|u16|i16|b16)")
def packed_16(instruction: Instruction, chip: Chip) -> Run:
    """Both halves: op_sel and op_sel_hi name the half of each source for the low and the high result."""
    operation, kind = instruction.name[5:].rsplit("_", 1)
    dtype = TYPES[kind]
    table = {**_FLOATS, "fma": fma16} if kind == "f16" else _INTEGERS
    if operation not in table:
        raise refuse(instruction, f"the operation '{operation}'")
    compute, to = table[operation], parse_operand(instruction.operands[0])
    if "clamp" in instruction.modifiers:
        raise refuse(instruction, "the clamp")
    operands = [parse_operand(t) for t in instruction.operands[1:]]
    n = len(operands)
    halves = []
    for select, negate, default in (("op_sel", "neg_lo", 0), ("op_sel_hi", "neg_hi", 1)):
        high, negative = flags(instruction, select, [default] * n), flags(instruction, negate, [0] * n)
        halves.append([_half(o, dtype, bool(high[i]), bool(negative[i])) for i, o in enumerate(operands)])

    def run(w) -> None:
        low, high = (compute(*(r(w) for r in readers)).view(U16).astype(U32) for readers in halves)
        w.write_vector(to.row, high << np.uint32(16) | low)

    return run


@builds(r"v_pk_(add|mul|fma)_f32|v_pk_mov_b32")
def packed_32(instruction: Instruction, chip: Chip) -> Run:
    """Two registers: op_sel and op_sel_hi name the register of each source for the first and second result."""
    operation = instruction.name.split("_")[2]
    moves = operation == "mov"
    to, operands = parse_operand(instruction.operands[0]), [parse_operand(t) for t in instruction.operands[1:]]
    n = len(operands)
    if moves:
        selected = flags(instruction, "op_sel", [0, 0])
        pairs = [[vector_reader(o.at(selected[i]), U32, lenient=True)] for i, o in enumerate(operands)]
        compute, rows = (lambda x: x), [[r for r in o.at(selected[i]).rows] for i, o in enumerate(operands)]
    else:
        pairs, rows = [], [[], []]
        compute = {"add": np.add, "mul": np.multiply, "fma": fma32}[operation]
        for select, negate, default in (("op_sel", "neg_lo", 0), ("op_sel_hi", "neg_hi", 1)):
            which, negative = flags(instruction, select, [default] * n), flags(instruction, negate, [0] * n)
            readers = [vector_reader(o.at(which[i]), F32) for i, o in enumerate(operands)]
            pairs.append([(lambda w, r=r: -r(w)) if negative[i] else r for i, r in enumerate(readers)])

    def run(w) -> None:
        first, second = (compute(*(r(w) for r in readers)).view(U32) for readers in pairs)
        unknown = [w.unknown(r) if r else None for r in rows]
        second = second.copy()  # it may be the row that the first write changes
        w.write_vector(to.row, first, unknown=unknown[0])
        w.write_vector(to.row + 1, second, unknown=unknown[1])

    return run


@builds(r"v_(fma|mad)_mix(lo|hi)?_(f32|f16)")
def mixed_fma(instruction: Instruction, chip: Chip) -> Run:
    """fma in f32 of sources which are f16 where op_sel_hi is set (op_sel: its upper half), into f32 or a half."""
    to, operands = parse_operand(instruction.operands[0]), [parse_operand(t) for t in instruction.operands[1:]]
    narrow, high = flags(instruction, "op_sel_hi", [0] * 3), flags(instruction, "op_sel", [0] * 3)
    readers: list[Reader] = []
    for i, operand in enumerate(operands):
        if narrow[i]:
            half = vector_reader(operand, F16, bool(high[i]))
            readers.append(lambda w, r=half: r(w).astype(F32))
        else:
            readers.append(vector_reader(operand, F32))
    part = next((p for p in ("lo", "hi") if f"_mix{p}_" in instruction.name), "")
    clamp = "clamp" in instruction.modifiers

    def run(w) -> None:
        value = fma32(*(r(w) for r in readers))
        value = np.clip(value, F32.type(0), F32.type(1)) if clamp else value
        if not part:
            w.write_vector(to.row, value.view(U32))
            return
        bits = value.astype(F16).view(U16).astype(U32)
        old = w.v[to.row]
        w.write_vector(
            to.row,
            old & np.uint32(0xFFFF0000) | bits if part == "lo" else old & U32.type(0xFFFF) | bits << np.uint32(16),
        )

    return run


@builds(r"v_dot4_i32_iu8|v_dot8_i32_iu4")
def dot_signs(instruction: Instruction, chip: Chip) -> Run:
    """Four products of bytes and an addend; neg_lo says which source is signed."""
    if "iu4" in instruction.name:
        raise refuse(instruction, "4-bit integers")
    to, operands = parse_operand(instruction.operands[0]), [parse_operand(t) for t in instruction.operands[1:]]
    kinds = [np.dtype(np.int8) if sign else U8 for sign in flags(instruction, "neg_lo", [0] * 3)[:2]]
    x, y, z = (vector_reader(o, U32) for o in operands)

    def run(w) -> None:
        total, a, b = z(w).view(I32), x(w), y(w)
        for shift in (0, 8, 16, 24):
            one, two = ((v >> np.uint32(shift)).astype(U8).view(k).astype(I32) for v, k in zip((a, b), kinds))
            total = total + one * two
        w.write_vector(to.row, total.view(U32))

    return run


def _dot2(dtype: np.dtype):
    def compute(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
        total = z.astype(np.float64)
        for shift in (np.uint32(0), np.uint32(16)):
            one, two = ((v >> shift).astype(U16).view(dtype).astype(np.float64) for v in (x, y))
            total = total + one * two
        return total.astype(F32)

    return compute


for _name, _type in (("f16", F16), ("bf16", _BF16)):
    ALU[f"v_dot2_f32_{_name}"] = Alu(F32, (U32, U32, F32), _dot2(_type))
    for _c in ("dot2c", "dot2acc"):
        ALU[f"v_{_c}_f32_{_name}"] = Alu(F32, (U32, U32, F32), _dot2(_type), accumulates=True)
