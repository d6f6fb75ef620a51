"""Scalar loads: a value per wave."""

from __future__ import annotations

import re

import numpy as np

from .chips import Chip
from .disassembly import Instruction
from .memory import Fault
from .operands import I64, U32, U64, parse_operand, scalar_reader
from .registers import SCALAR
from .registry import Run, builds, refuse
from .waves import Waves

_SMALL = {"u8": np.uint8, "i8": np.int8, "u16": np.uint16, "i16": np.int16}


@builds(r"s_(buffer_)?load_\w+")
def scalar_load(instruction: Instruction, chip: Chip) -> Run:
    """`s_load_dwordx4 s[0:3], s[4:5], offset`; the buffer form has a resource as base."""
    suffix = instruction.name.rsplit("_", 1)[1]
    small = _SMALL.get(suffix)
    match = re.fullmatch(r"dword(?:x(\d+))?|b(\d+)", suffix)
    if not match and not small:
        raise refuse(instruction, "the type")
    count = 1 if not match else int(match[1]) if match[1] else int(match[2]) // 32 if match[2] else 1
    narrow = np.dtype(small or np.uint32)
    size = count * narrow.itemsize
    to, base = parse_operand(instruction.operands[0]), parse_operand(instruction.operands[1])
    pointer, buffer = scalar_reader(base, U64), "_buffer_" in instruction.name
    register = parse_operand(instruction.operands[2])
    offset = scalar_reader(register, U32) if register.kind == "s" and instruction.operands[2] != "null" else None
    immediate = int(instruction.modifiers.get("offset", "0"), 0)
    if register.kind == "number":
        immediate += int(register.number)

    def run(w: Waves) -> None:
        start = np.broadcast_to(np.array(immediate, I64).view(U64), (w.count,))
        if offset:
            start = start + offset(w)
        addresses = pointer(w)
        if buffer:
            addresses = addresses & np.uint64(2**48 - 1)
            beyond = w.active & (start + np.uint64(size) > w.scalar(base.row + 2))
            if beyond.any():
                raise w.fail("a scalar load is beyond its buffer", int(np.argmax(beyond)))
        addresses = addresses + start
        if match:
            addresses = addresses & ~np.uint64(3)
        try:
            found = w.memory.load(addresses[w.active], size)
        except Fault as fault:
            raise w.fail(str(fault), int(np.flatnonzero(w.active)[fault.lane])) from None
        words = found.view(narrow).astype(np.int64).astype(U32)
        for i in range(count):
            value = np.zeros(w.count, U32)
            value[w.active] = words[:, i]
            w.write_scalar(to.row + i, value)
        rows = range(to.row + SCALAR, to.row + SCALAR + count)
        w.counters.issue(chip.scalar_counter, rows, w.active, ordered=False)

    return run
