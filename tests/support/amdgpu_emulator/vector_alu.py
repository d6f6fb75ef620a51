"""Lane-wise instructions: sources with their modifiers, the operation, the write; dual and carry forms."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from .chips import Chip
from .disassembly import Instruction
from .dpp import Dpp, dpp_source
from .operands import BITS, I64, MASK, U32, Operand, Reader, parse_operand, signed, undefined_where, vector_reader
from .registers import VCC
from .registry import ALU, Alu, Run, refuse
from .waves import Waves

_OMOD = {"mul:2": 2.0, "mul:4": 4.0, "div:2": 0.5}
_SDWA = {f"BYTE_{i}": (8 * i, 0xFF) for i in range(4)} | {"WORD_0": (0, 0xFFFF), "WORD_1": (16, 0xFFFF)}

Commit = Callable[[Waves, np.ndarray], None]


def flags(instruction: Instruction, name: str, default: list[int]) -> list[int]:
    """A modifier that is a list, such as `op_sel:[0,1]`, filled up from `default`."""
    text = instruction.modifiers.get(name)
    given = [int(x, 0) for x in text.strip("[]").split(",")] if text else []
    return given + default[len(given) :]


def _sdwa(reader: Reader, selection: str, sign: bool) -> Reader:
    """A byte or a half of what is read, zero- or sign-extended to 32 bits."""
    if selection == "DWORD":
        return reader
    shift, mask = _SDWA[selection]
    top = np.uint32((mask + 1) >> 1)
    if sign:
        return lambda w: ((reader(w) >> np.uint32(shift) & np.uint32(mask)) ^ top) - top
    return lambda w: reader(w) >> np.uint32(shift) & np.uint32(mask)


def source(instruction: Instruction, number: int, operand: Operand, dtype: np.dtype, lenient: bool = False) -> Reader:
    """The reader of a source, the `number`th, with what the encoding adds to it."""
    m = instruction.modifiers
    selection = m.get(f"src{number}_sel")
    if selection and dtype.itemsize <= 4 and operand.kind != "number":
        sign = operand.text.startswith("sext(")
        inner = parse_operand(operand.text[5:-1]) if sign else operand
        plain = Operand(inner.text, inner.kind, inner.row, inner.count)
        word = _sdwa(vector_reader(plain, U32, lenient=lenient), selection, sign)
        narrow = BITS[dtype.itemsize]
        return signed(lambda w: word(w).astype(narrow), inner, dtype)
    high = bool(flags(instruction, "op_sel", [0] * 4)[number]) and dtype.itemsize == 2
    if number == 0 and (dpp := dpp_source(instruction, operand, dtype, high)):
        return dpp.read if lenient else dpp.read_known
    return vector_reader(operand, dtype, high, lenient)


def _clamped(compute: Callable[[Waves], np.ndarray], instruction: Instruction, result: np.dtype) -> Reader:
    """Apply the output modifiers."""
    factor = next((f for text, f in _OMOD.items() if instruction.modifiers.get(text[:3]) == text[4:]), None)
    if "clamp" not in instruction.modifiers and factor is None:
        return compute
    scale, clamp = result.type(factor or 1.0), "clamp" in instruction.modifiers

    def run(w: Waves) -> np.ndarray:
        value = compute(w) * scale
        return np.clip(np.nan_to_num(value, nan=0.0, posinf=1.0), 0, 1).astype(result) if clamp else value

    return run


def _saturated(instruction: Instruction, alu: Alu, readers: list[Reader]) -> Reader:
    """A sum of integers that stays within the limits of its type."""
    if alu.result.itemsize > 4 or not re.match("v_(add|sub|mad)", instruction.name):
        raise refuse(instruction, "the clamp")
    limits = np.iinfo(alu.result)

    def run(w: Waves) -> np.ndarray:
        exact = alu.compute(*(r(w).astype(I64) for r in readers))
        return np.clip(exact, limits.min, limits.max).astype(alu.result)

    return run


def _sources(instruction: Instruction, alu: Alu) -> list[Operand]:
    """The sources, with those that the text leaves out: the destination of an accumulation, VCC."""
    operands = [parse_operand(t) for t in instruction.operands[1:]]
    if alu.accumulates and len(operands) < len(alu.sources):
        operands.append(parse_operand(instruction.operands[0]))
    if len(operands) < len(alu.sources) and alu.sources[-1] == MASK:
        operands.append(Operand("vcc", "s", VCC, 2))
    if len(operands) != len(alu.sources):
        raise refuse(instruction, f"{len(operands)} sources")
    return operands


def evaluator(instruction: Instruction, alu: Alu) -> Reader:
    """The function that computes the result."""
    operands = _sources(instruction, alu)
    readers = [
        source(instruction, i, operand, dtype, lenient=True)
        for i, (operand, dtype) in enumerate(zip(operands, alu.sources))
    ]
    compute = alu.compute
    if "clamp" in instruction.modifiers and alu.result.kind in "iu":
        return _saturated(instruction, alu, readers)
    if len(readers) == 1:
        (x,) = readers
        return _clamped(lambda w: compute(x(w)), instruction, alu.result)
    if len(readers) == 2:
        x, y = readers
        return _clamped(lambda w: compute(x(w), y(w)), instruction, alu.result)
    return _clamped(lambda w: compute(*(r(w) for r in readers)), instruction, alu.result)


def _undefined(instruction: Instruction, alu: Alu, dpp: Dpp | None) -> Callable[[Waves], np.ndarray | None]:
    """Where the result is undefined, as its sources are."""
    operands = _sources(instruction, alu)
    if alu.selects and operands[2].kind == "s":
        chosen = vector_reader(operands[2], MASK)
        parts = [dpp.unknown if dpp else undefined_where(operands[:1]), undefined_where(operands[1:2])]

        def selected(w: Waves) -> np.ndarray | None:
            x, y = (part(w) for part in parts)
            if x is None and y is None:
                return None
            return np.where(chosen(w), False if y is None else y, False if x is None else x)

        return selected
    rest = undefined_where(o for o, dtype in zip(operands, alu.sources) if dtype != MASK)
    if not dpp:
        return rest
    others = undefined_where(operands[1:])

    def moved(w: Waves) -> np.ndarray | None:
        first, second = dpp.unknown(w), others(w)
        return second if first is None else first if second is None else first | second

    return moved


def committer(instruction: Instruction, alu: Alu, chip: Chip) -> Commit:
    """The function that writes the result."""
    to = parse_operand(instruction.operands[0])
    if to.kind != "v":
        raise refuse(instruction, "a scalar destination")
    dpp = dpp_source(instruction, parse_operand(instruction.operands[1]), U32, False)
    undefined = _undefined(instruction, alu, dpp)
    row, size = to.row, alu.result.itemsize
    bits = BITS[size]

    def where(w: Waves) -> np.ndarray | None:
        return dpp.written(w) if dpp else None

    if instruction.modifiers.get("dst_sel", "DWORD") != "DWORD":
        return _sdwa_commit(instruction, row, undefined)
    if size == 8:
        return lambda w, value: w.write_vector64(row, value.view(bits), where(w), undefined(w))
    if size == 4:
        return lambda w, value: w.write_vector(row, value.view(U32), where(w), undefined(w))
    high = to.half if to.half is not None else flags(instruction, "op_sel", [0] * 4)[len(instruction.operands) - 1]
    if chip.zeroes_high_half and not (high or alu.keeps_high or to.half is not None):
        return lambda w, value: w.write_vector(row, value.view(bits).astype(U32), where(w), undefined(w))
    keep, shift = np.uint32(0xFFFF if high else 0xFFFF0000), np.uint32(16 if high else 0)

    def commit_half(w: Waves, value: np.ndarray) -> None:
        word = w.v[row] & keep | value.view(bits).astype(U32) << shift
        w.write_vector(row, word, where(w), undefined(w), half=int(high))

    return commit_half


def _sdwa_commit(instruction: Instruction, row: int, undefined: Callable[[Waves], np.ndarray | None]) -> Commit:
    shift, mask = _SDWA[instruction.modifiers["dst_sel"]]
    preserve = instruction.modifiers.get("dst_unused") == "UNUSED_PRESERVE"
    if instruction.modifiers.get("dst_unused") == "UNUSED_SEXT":
        raise refuse(instruction, "the sign extension of the result")
    keep = np.uint32(0xFFFFFFFF ^ (mask << shift) if preserve else 0)

    def commit(w: Waves, value: np.ndarray) -> None:
        word = value.view(BITS[value.dtype.itemsize]).astype(U32) & np.uint32(mask)
        w.write_vector(row, w.v[row] & keep | word << np.uint32(shift), unknown=undefined(w))

    return commit


def build_alu(instruction: Instruction, alu: Alu, chip: Chip) -> Run:
    """A lane-wise instruction, of the table."""
    evaluate, commit = evaluator(instruction, alu), committer(instruction, alu, chip)
    return lambda w: commit(w, evaluate(w))


def build_dual(instruction: Instruction, chip: Chip) -> Run:
    """Two lane-wise instructions that read before either writes."""
    halves = [instruction, instruction.second]
    parts = []
    for half in halves:
        if half is None or half.name not in ALU:
            raise refuse(instruction, f"'{half.name if half else ''}' as half of a dual instruction")
        parts.append((evaluator(half, ALU[half.name]), committer(half, ALU[half.name], chip)))
    (x, write_x), (y, write_y) = parts

    def run(w: Waves) -> None:
        first, second = x(w), y(w).copy()  # a move's value is the register itself, which the first may write
        write_x(w, first)
        write_y(w, second)

    return run
