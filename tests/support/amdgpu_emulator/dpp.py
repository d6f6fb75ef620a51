"""Data-parallel primitives: the first source comes from another lane of the wave.

Lanes whose source lane does not exist or is off read 0 with `bound_ctrl`, and are not written without it.
Source: AMD's "Instinct MI200" and "RDNA3" ISA documents, section DPP.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from .disassembly import Instruction
from .operands import Operand, signed
from .registry import refuse
from .waves import Waves

_CONTROLS = ("quad_perm", "dpp8", "row_shl", "row_shr", "row_ror", "row_mirror", "row_half_mirror", "row_newbcast")
_CONTROLS += ("row_share", "row_xmask", "row_bcast", "wave_shl", "wave_shr", "wave_rol", "wave_ror")


@functools.cache
def source_lanes(control: str, value: str, width: int) -> np.ndarray:
    """The lane that each lane reads, -1 where there is none."""
    lane = np.arange(width)
    row, place = lane // 16 * 16, lane % 16
    if control in ("quad_perm", "dpp8"):
        order = np.array([int(x) for x in value.strip("[]").split(",")])
        return lane // len(order) * len(order) + order[lane % len(order)]
    if control == "row_mirror":
        return row + 15 - place
    if control == "row_half_mirror":
        return lane // 8 * 8 + 7 - lane % 8
    n = int(value, 0)
    if control == "row_shl":
        return np.where(place + n < 16, lane + n, -1)
    if control == "row_shr":
        return np.where(place >= n, lane - n, -1)
    if control == "row_ror":
        return row + (place - n) % 16
    if control in ("row_newbcast", "row_share"):
        return row + n
    if control == "row_xmask":
        return row + (place ^ n)
    if control == "row_bcast":  # the last lane of a row (15) or of the lower half (31) to the rows after it
        block = n + 1
        return np.where(lane >= block, lane // block * block - 1, -1)
    if control == "wave_shl":
        return np.where(lane + n < width, lane + n, -1)
    if control == "wave_shr":
        return lane - n
    return (lane + n) % width if control == "wave_rol" else (lane - n) % width


@dataclass(frozen=True)
class Dpp:
    """How a source moves, and which lanes of the result are written."""

    operand: Operand
    control: str
    value: str
    zero: bool  # bound_ctrl
    inactive: bool  # fi: lanes that are off may be read
    rows: int
    banks: int
    dtype: np.dtype
    high: bool

    def _valid(self, w: Waves) -> tuple[np.ndarray, np.ndarray]:
        """The source lanes, and (waves, lanes) where they give a value."""
        lanes = source_lanes(self.control, self.value, w.width)
        valid = np.broadcast_to(lanes >= 0, w.mask.shape)
        return lanes, valid if self.inactive else valid & w.mask[:, lanes]

    def read(self, w: Waves) -> np.ndarray:
        """The moved source; `unknown` says where it is undefined."""
        lanes, valid = self._valid(w)
        half = (
            (int(self.high) if self.operand.half is None else self.operand.half) if self.dtype.itemsize == 2 else None
        )
        bits = np.where(valid, w.vector(self.operand.row, True, half)[:, lanes], np.uint32(0))
        if half is not None:
            bits = (bits >> np.uint32(16 * half)).astype(np.uint16)
        return signed(lambda _: bits, self.operand, self.dtype)(w)

    def read_known(self, w: Waves) -> np.ndarray:
        """The moved source, which must be defined."""
        value, unknown = self.read(w), self.unknown(w)
        if unknown is not None:
            w.require(~unknown, self.operand.row)
        return value

    def unknown(self, w: Waves) -> np.ndarray | None:
        """Where the moved source is undefined, of the lanes that are written."""
        lanes, valid = self._valid(w)
        unknown = ~w.known(self.operand.row)[:, lanes] & valid & self.written(w)
        return unknown if unknown.any() else None

    def written(self, w: Waves) -> np.ndarray:
        """(waves, lanes) of the result that are written."""
        lane = np.arange(w.width)
        chosen = (self.rows >> (lane // 16) & self.banks >> (lane % 16 // 4) & 1).astype(bool)
        written = w.mask & chosen
        return written if self.zero else written & self._valid(w)[1]


def dpp_source(instruction: Instruction, operand: Operand, dtype: np.dtype, high: bool) -> Dpp | None:
    """The movement of an instruction's first source, or None."""
    m = instruction.modifiers
    control = next((c for c in _CONTROLS if c in m), None)
    if control is None:
        return None
    if operand.kind != "v" or dtype.itemsize == 8:
        raise refuse(instruction, "DPP on this operand")
    masks = int(m.get("row_mask", "0xf"), 0), int(m.get("bank_mask", "0xf"), 0)
    zero, inactive = m.get("bound_ctrl") == "1" or control == "dpp8", m.get("fi") == "1"
    return Dpp(operand, control, m[control], zero, inactive, *masks, dtype, high)
