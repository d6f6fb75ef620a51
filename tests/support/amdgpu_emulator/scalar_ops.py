"""Scalar instructions with more than a result: carries, the condition bit SCC, EXEC, the program counter."""

from __future__ import annotations

import numpy as np

from .chips import Chip
from .disassembly import Instruction
from .operands import F32, I32, I64, TYPES, U32, U64, parse_operand, scalar_reader, signed
from .registers import EXEC
from .registry import ALU, Run, builds, refuse
from .scalar_table import LOGIC, write
from .waves import Waves

_SAVE = {**LOGIC, "andn1": lambda x, y: ~x & y, "orn1": lambda x, y: ~x | y}
_SAVE |= {"and_not0": _SAVE["andn1"], "or_not0": _SAVE["orn1"]}
_RELATIONS = {"eq": np.equal, "lg": np.not_equal, "gt": np.greater, "ge": np.greater_equal, "lt": np.less}
_RELATIONS |= {"le": np.less_equal, "neq": lambda x, y: ~(x == y), "nlt": lambda x, y: ~(x < y)}
_RELATIONS |= {"ngt": lambda x, y: ~(x > y), "nge": lambda x, y: ~(x >= y), "nle": lambda x, y: ~(x <= y)}
_RELATIONS |= {"o": lambda x, y: (x == x) & (y == y), "u": lambda x, y: (x != x) | (y != y)}


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
            write(w, to.row, np.broadcast_to(alu.compute(source(w)), (w.count,)).astype(F32))

    return run


@builds(r"s_(min|max)_[iu]32")
def choose(instruction: Instruction, chip: Chip) -> Run:
    """The smaller or larger; SCC says whether it is the first."""
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
    return lambda w: write(w, to.row, np.where(w.scc, x(w), y(w)))


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
        write(w, to.row, old(w) | bit if one else old(w) & ~bit)

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
        write(w, to.row, old if "saveexec" in instruction.name else new)
        write(w, EXEC, new)
        w.write_scc(new != 0)

    return run


@builds(r"s_getpc_b64")
def program_counter(instruction: Instruction, chip: Chip) -> Run:
    """The address of the next instruction."""
    to, offset = parse_operand(instruction.operands[0]), instruction.address + instruction.size
    return lambda w: w.write_scalar64(to.row, np.array(w.code_base + offset, U64))
