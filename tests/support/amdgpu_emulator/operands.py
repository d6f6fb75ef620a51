"""Operands of instructions: from text to functions that read them.

A reader takes the waves and gives an array that broadcasts to (waves, lanes) for vector instructions, to (waves,) for
scalar ones. Floating-point modifiers (`-v0`, `|v0|`) act on the sign bit, so they work on any type.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import pi
from typing import Any

import numpy as np

from .errors import EmulatorError
from .registers import AGPR, EXEC, FLAT_SCRATCH, M0, NULL, TTMP, VCC
from .waves import Waves

U8, U16, U32, U64 = np.dtype(np.uint8), np.dtype(np.uint16), np.dtype(np.uint32), np.dtype(np.uint64)
I8, I16, I32, I64 = np.dtype(np.int8), np.dtype(np.int16), np.dtype(np.int32), np.dtype(np.int64)
F16, F32, F64 = np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.float64)
MASK = np.dtype(bool)  # a bit for each lane, in scalar registers
BITS = {1: U8, 2: U16, 4: U32, 8: U64}
TYPES = {"f16": F16, "f32": F32, "f64": F64, "b16": U16, "b32": U32, "b64": U64}
TYPES |= {"u16": U16, "u32": U32, "u64": U64, "i16": I16, "i32": I32, "i64": I64}

Reader = Callable[[Waves], np.ndarray]

_NAMED = {"vcc": (VCC, 2), "vcc_lo": (VCC, 1), "vcc_hi": (VCC + 1, 1)}
_NAMED |= {"exec": (EXEC, 2), "exec_lo": (EXEC, 1), "exec_hi": (EXEC + 1, 1), "m0": (M0, 1), "null": (NULL, 1)}
_NAMED |= {"flat_scratch": (FLAT_SCRATCH, 2), "flat_scratch_lo": (FLAT_SCRATCH, 1)}
_NAMED |= {"flat_scratch_hi": (FLAT_SCRATCH + 1, 1)}
_REGISTER = re.compile(r"(v|a|s|ttmp)(?:(\d+)|\[(\d+):(\d+)\])$")


@dataclass(frozen=True)
class Operand:
    """`kind` is v (a row of vector registers), s (of scalar ones), scc, number, or text for anything else."""

    text: str
    kind: str
    row: int = 0
    count: int = 1
    number: float | int = 0
    half: int | None = None  # .l or .h
    negative: bool = False
    absolute: bool = False

    def at(self, offset: int) -> Operand:
        """The register `offset` places on, alone; a number is itself."""
        if self.kind not in "vs":
            return self
        return Operand(self.text, self.kind, self.row + offset, 1, negative=self.negative, absolute=self.absolute)

    @property
    def rows(self) -> range:
        """Vector registers that the operand covers."""
        return range(self.row, self.row + self.count) if self.kind == "v" else range(0)

    @property
    def scalars(self) -> range:
        """Scalar registers that the operand covers."""
        return range(self.row, self.row + self.count) if self.kind == "s" else range(0)


def parse_operand(text: str) -> Operand:
    """The operand that `text` names."""
    core, negative, absolute = text, False, False
    if match := re.match(r"(neg|abs)\((.*)\)$", core):
        core, negative, absolute = match[2], match[1] == "neg", match[1] == "abs"
    if re.match(r"-[^\d]", core):
        core, negative = core[1:], True
    if core.startswith("|"):
        core, absolute = core.strip("|"), True
    half = {".l": 0, ".h": 1}.get(core[-2:])
    if half is not None:
        core = core[:-2]
    signs: dict[str, Any] = {"negative": negative, "absolute": absolute, "half": half}
    if match := _REGISTER.match(core):
        first = int(match[2] or match[3])
        count = 1 if match[2] else int(match[4]) - first + 1
        start = {"v": 0, "a": AGPR, "s": 0, "ttmp": TTMP}[match[1]]
        return Operand(text, "v" if match[1] in "va" else "s", start + first, count, **signs)
    if core in _NAMED:
        row, count = _NAMED[core]
        return Operand(text, "s", row, count, **signs)
    if core in ("scc", "src_scc"):
        return Operand(text, "scc")
    if re.match(r"-?\d+\.\d+(e[+-]?\d+)?$", core):
        value = 0.5 / pi if core.startswith("0.15915494") else float(core)
        return Operand(text, "number", number=value, **signs)
    if re.match(r"-?(0x[0-9a-f]+|\d+)$", core):
        return Operand(text, "number", number=int(core, 0), **signs)
    return Operand(text, "text")


def constant_bits(operand: Operand, dtype: np.dtype) -> int:
    """The bits of a constant in an operand of `dtype`.

    `1.0` is a number of the operand's width also for integers; a 32-bit literal is the upper half of an f64.
    """
    width = 8 * dtype.itemsize
    if isinstance(operand.number, float):
        return int(np.array(operand.number, f"f{dtype.itemsize}").view(BITS[dtype.itemsize]))
    if dtype == F64 and operand.text.lstrip("-|").startswith("0x"):
        return operand.number << 32
    return operand.number % 2**width


def signed(reader: Reader, operand: Operand, dtype: np.dtype) -> Reader:
    """Apply the operand's sign modifiers to bits, and give them their type."""
    sign = 1 << (8 * dtype.itemsize - 1)
    flip, keep = BITS[dtype.itemsize].type(sign), BITS[dtype.itemsize].type(sign - 1)
    if operand.negative and operand.absolute:
        return lambda w: (reader(w) | flip).view(dtype)
    if operand.absolute:
        return lambda w: (reader(w) & keep).view(dtype)
    if operand.negative:
        return lambda w: (reader(w) ^ flip).view(dtype)
    return reader if dtype == BITS[dtype.itemsize] else lambda w: reader(w).view(dtype)


def vector_reader(operand: Operand, dtype: np.dtype, high: bool = False, lenient: bool = False) -> Reader:
    """Read an operand of a vector instruction: (waves or 1, lanes or 1).

    `high` takes the upper half of a register for a 16-bit type; `lenient` lets undefined values pass, for a caller
    that marks its result (`undefined_where`).
    """
    row = operand.row
    if dtype == MASK:
        return lambda w: w.lanes(row)
    size = dtype.itemsize
    if operand.kind == "number":
        bits = np.full((1, 1), constant_bits(operand, dtype), BITS[size])
        return signed(lambda w: bits, operand, dtype)
    if operand.kind == "scc":
        return lambda w: w.scc[:, None].astype(dtype)
    if operand.kind not in "vs":
        raise EmulatorError(f"'{operand.text}' is not an operand that the emulator can read")
    vector = operand.kind == "v"
    if size == 8:
        if vector:
            return signed(lambda w: w.vector64(row, lenient), operand, dtype)
        return signed(lambda w: w.scalar64(row, lenient)[:, None], operand, dtype)

    half = (int(high) if operand.half is None else operand.half) if size == 2 else None

    def whole(w: Waves) -> np.ndarray:
        return w.vector(row, lenient, half) if vector else w.scalar(row, lenient)[:, None]

    if size == 4:
        return signed(whole, operand, dtype)
    shift = np.uint32(16 if half else 0)
    if size == 1:
        return lambda w: whole(w).astype(U8).view(dtype)
    return signed(lambda w: (whole(w) >> shift).astype(U16), operand, dtype)


def scalar_reader(operand: Operand, dtype: np.dtype) -> Reader:
    """Read an operand of a scalar instruction: (waves,) or (1,)."""
    row = operand.row
    if operand.kind == "number":
        bits = np.full(1, constant_bits(operand, dtype), BITS[dtype.itemsize]).view(dtype)
        return lambda w: bits
    if operand.kind == "scc":
        return lambda w: w.scc.astype(dtype)
    if operand.kind != "s":
        raise EmulatorError(f"'{operand.text}' is not a scalar operand that the emulator can read")
    if dtype.itemsize == 8:
        return lambda w: w.scalar64(row).view(dtype)
    if dtype.itemsize == 2:
        return lambda w: w.scalar(row).astype(U16).view(dtype)
    return lambda w: w.scalar(row).view(dtype)


def undefined_where(operands: Iterable[Operand]) -> Callable[[Waves], np.ndarray | None]:
    """Where any of the operands of a vector instruction is undefined: (waves, lanes), or None for nowhere."""
    operands = list(operands)
    rows = [row for operand in operands for row in operand.rows]
    scalars = [row for operand in operands for row in operand.scalars]
    return lambda w: w.unknown(rows, scalars)
