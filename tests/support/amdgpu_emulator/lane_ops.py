"""Values across lanes: read, write and permute lanes, count bits of masks."""

from __future__ import annotations

import numpy as np

from .chips import Chip
from .disassembly import Instruction
from .integer_ops import count_bits
from .operands import U32, parse_operand, scalar_reader, vector_reader
from .registers import register_name
from .registry import Run, builds, refuse
from .vector_alu import flags
from .waves import Waves


@builds(r"v_readfirstlane_b32|v_readlane_b32")
def read_lane(instruction: Instruction, chip: Chip) -> Run:
    """One lane of a vector register, the first that is on or one by number, into a scalar register."""
    to, operand = parse_operand(instruction.operands[0]), parse_operand(instruction.operands[1])
    number = None if "first" in instruction.name else scalar_reader(parse_operand(instruction.operands[2]), U32)

    def run(w: Waves) -> None:
        if number:
            lane = np.broadcast_to(number(w) % np.uint32(w.width), (w.count,)).astype(np.int64)
        else:
            lane = np.argmax(w.mask, axis=1)  # lane 0 where all are off
        waves = np.arange(w.count)
        if operand.kind != "v":
            w.write_scalar(to.row, vector_reader(operand, U32)(w)[:, 0])
            return
        value = w.vector(operand.row, lenient=True)[waves, lane]
        bad = w.active & ~w.known(operand.row)[waves, lane]
        if bad.any():
            wave = int(np.argmax(bad))
            raise w.fail(f"{register_name(operand.row)} is read but was never written", wave, int(lane[wave]))
        w.write_scalar(to.row, value)

    return run


@builds(r"v_writelane_b32")
def write_lane(instruction: Instruction, chip: Chip) -> Run:
    """A scalar into one lane, also if it is off."""
    to, value = parse_operand(instruction.operands[0]), scalar_reader(parse_operand(instruction.operands[1]), U32)
    number = scalar_reader(parse_operand(instruction.operands[2]), U32)

    def run(w: Waves) -> None:
        lane = number(w)[:, None] % np.uint32(w.width)
        w.write_vector(to.row, value(w)[:, None], (w.lane == lane) & w.active[:, None])

    return run


@builds(r"v_mbcnt_(lo|hi)_u32_b32")
def masked_count(instruction: Instruction, chip: Chip) -> Run:
    """Ones of a mask's half in the lanes before this one, plus an addend."""
    to = parse_operand(instruction.operands[0])
    mask, addend = (vector_reader(parse_operand(t), U32) for t in instruction.operands[1:])
    start = 32 if "_hi_" in instruction.name else 0

    def run(w: Waves) -> None:
        below = np.clip(w.lane - start, 0, 32)
        before = ((1 << below.astype(np.uint64)) - 1).astype(U32)
        w.write_vector(to.row, count_bits(np.ascontiguousarray(mask(w) & before)) + addend(w))

    return run


def _permute(
    w: Waves, to: int, row: int, lanes: np.ndarray, valid: np.ndarray, where: np.ndarray | None = None
) -> None:
    """Write lanes of a register, 0 where not valid."""
    waves = np.arange(w.count)[:, None]
    unknown = ~w.known(row)[waves, lanes] & valid & w.mask
    value = np.where(valid, w.vector(row, lenient=True)[waves, lanes], np.uint32(0))
    w.write_vector(to, value, where, unknown if unknown.any() else None)


@builds(r"ds_bpermute_b32|ds_permute_b32")
def permute(instruction: Instruction, chip: Chip) -> Run:
    """Read from (`bpermute`), or send to, the lane that an address/4 names; lanes that are off give 0."""
    to, address = parse_operand(instruction.operands[0]), vector_reader(parse_operand(instruction.operands[1]), U32)
    operand, offset = parse_operand(instruction.operands[2]), int(instruction.modifiers.get("offset", "0"), 0)
    sends = instruction.name == "ds_permute_b32"

    def run(w: Waves) -> None:
        lanes = ((address(w) + np.uint32(offset)) // np.uint32(4) % np.uint32(w.width)).astype(np.int64)
        lanes = np.broadcast_to(lanes, w.mask.shape)
        waves = np.arange(w.count)[:, None]
        if sends:
            value, made = w.vector(operand.row), np.zeros(w.mask.shape, U32)
            rows, columns = np.nonzero(w.mask)
            made[rows, lanes[rows, columns]] = value[rows, columns]
            w.write_vector(to.row, made)
        else:
            _permute(w, to.row, operand.row, lanes, w.mask[waves, lanes])
        w.counters.issue(chip.lds_counter, [to.row], w.active)

    return run


@builds(r"ds_swizzle_b32")
def swizzle(instruction: Instruction, chip: Chip) -> Run:
    """Read from a lane that a pattern names within 32 (or 4) lanes."""
    to, operand = parse_operand(instruction.operands[0]), parse_operand(instruction.operands[1])
    pattern = instruction.word & 0xFFFF
    lane = np.arange(chip.width)
    if pattern >= 0xE000 or (pattern >= 0xC000 and chip.generation > 9):
        raise refuse(instruction, "this pattern")
    if pattern & 0x8000:  # four lanes, two bits each
        source = lane // 4 * 4 + np.array([pattern >> 2 * i & 3 for i in range(4)])[lane % 4]
    else:  # and, or, xor of the five bits of a lane
        keep, set_, flip = pattern & 31, pattern >> 5 & 31, pattern >> 10 & 31
        source = lane // 32 * 32 + ((lane % 32 & keep | set_) ^ flip)

    def run(w: Waves) -> None:
        lanes = np.broadcast_to(source, w.mask.shape)
        _permute(w, to.row, operand.row, lanes, w.mask[:, source])
        w.counters.issue(chip.lds_counter, [to.row], w.active)

    return run


@builds(r"v_permlane(x?)16_b32")
def permute_row(instruction: Instruction, chip: Chip) -> Run:
    """Read from a lane of this row of 16 (`x`: of the other one), by 4-bit numbers in two scalars."""
    to, operand = parse_operand(instruction.operands[0]), parse_operand(instruction.operands[1])
    low, high = (scalar_reader(parse_operand(t), U32) for t in instruction.operands[2:4])
    crosses = "x16" in instruction.name
    off, zero = flags(instruction, "op_sel", [0, 0])[:2]  # fi and bound_ctrl

    def run(w: Waves) -> None:
        place = w.lane % 16
        words = np.where(place < 8, low(w)[:, None], high(w)[:, None])
        chosen = (words >> (place % 8 * 4).astype(U32) & np.uint32(15)).astype(np.int64)
        lanes = (w.lane // 16 * 16 ^ (16 if crosses else 0)) + np.broadcast_to(chosen, w.mask.shape)
        valid = np.ones(w.mask.shape, bool) if off else w.mask[np.arange(w.count)[:, None], lanes]
        _permute(w, to.row, operand.row, lanes, valid, None if zero else w.mask & valid)

    return run


@builds(r"v_permlane64_b32")
def swap_halves(instruction: Instruction, chip: Chip) -> Run:
    """Swap the halves of a wave of 64 lanes; with 32 a move."""
    to, operand = parse_operand(instruction.operands[0]), parse_operand(instruction.operands[1])

    def run(w: Waves) -> None:
        lanes = np.broadcast_to(w.lane ^ 32 if w.width == 64 else w.lane, w.mask.shape)
        _permute(w, to.row, operand.row, lanes, np.ones(w.mask.shape, bool))

    return run
