"""Operations on pairs: two halves of a register, two registers, or a mix of f16 and f32."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from .chips import Chip
from .disassembly import Instruction
from .float_ops import fma16, fma32
from .operands import (
    F16,
    F32,
    I32,
    TYPES,
    U8,
    U16,
    U32,
    U64,
    Operand,
    Reader,
    parse_operand,
    undefined_where,
    vector_reader,
)
from .registry import ALU, Alu, Run, builds, refuse
from .vector_alu import flags
from .waves import Waves

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
        reader = vector_reader(operand, dtype, high, lenient=True)
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
    undefined = undefined_where(operands)
    halves = []
    for select, negate, default in (("op_sel", "neg_lo", 0), ("op_sel_hi", "neg_hi", 1)):
        high, negative = flags(instruction, select, [default] * n), flags(instruction, negate, [0] * n)
        halves.append([_half(o, dtype, bool(high[i]), bool(negative[i])) for i, o in enumerate(operands)])

    def run(w: Waves) -> None:
        low, high = (compute(*(r(w) for r in readers)).view(U16).astype(U32) for readers in halves)
        w.write_vector(to.row, high << np.uint32(16) | low, unknown=undefined(w))

    return run


@builds(r"v_pk_(add|mul|fma)_f32|v_pk_mov_b32")
def packed_32(instruction: Instruction, chip: Chip) -> Run:
    """Two registers: op_sel and op_sel_hi name the register of each source for the first and second result.

    `v_pk_mov_b32` takes the first result from its first source and the second from its second, both by op_sel.
    """
    operation = instruction.name.split("_")[2]
    to, operands = parse_operand(instruction.operands[0]), [parse_operand(t) for t in instruction.operands[1:]]
    n = len(operands)
    compute = {"add": np.add, "mul": np.multiply, "fma": fma32, "mov": lambda x: x}[operation]
    dtype = U32 if operation == "mov" else F32
    halves = []
    for part, (select, negate, default) in enumerate((("op_sel", "neg_lo", 0), ("op_sel_hi", "neg_hi", 1))):
        if operation == "mov":
            sources, negative = [operands[part].at(flags(instruction, "op_sel", [0, 0])[part])], [0]
        else:
            which, negative = flags(instruction, select, [default] * n), flags(instruction, negate, [0] * n)
            sources = [operand.at(which[i]) for i, operand in enumerate(operands)]
        readers = [vector_reader(operand, dtype, lenient=True) for operand in sources]
        signs = [(lambda w, r=r: -r(w)) if negative[i] else r for i, r in enumerate(readers)]
        halves.append((signs, undefined_where(sources)))

    def run(w: Waves) -> None:
        values = [compute(*(r(w) for r in readers)).view(U32).copy() for readers, _ in halves]
        unknown = [undefined(w) for _, undefined in halves]
        for i in (0, 1):
            w.write_vector(to.row + i, values[i], unknown=unknown[i])

    return run


@builds(r"v_mov_b64")
def move_64(instruction: Instruction, chip: Chip) -> Run:
    """Two registers, each as defined as the one it comes from."""
    to, operand = (parse_operand(t) for t in instruction.operands)
    if operand.kind == "number":
        whole = vector_reader(operand, U64)
        return lambda w: w.write_vector64(to.row, np.broadcast_to(whole(w), w.mask.shape))
    parts = [operand.at(i) for i in (0, 1)]
    readers, undefined = [vector_reader(o, U32, lenient=True) for o in parts], [undefined_where([o]) for o in parts]

    def run(w: Waves) -> None:
        values, unknown = [r(w).copy() for r in readers], [u(w) for u in undefined]
        for i in (0, 1):
            w.write_vector(to.row + i, values[i], unknown=unknown[i])

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

    def run(w: Waves) -> None:
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

    def run(w: Waves) -> None:
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
