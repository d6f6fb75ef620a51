"""The registers of many waves at once, and what may be done to them.

All waves of a batch of workgroups live in one object. A vector register is a row of (waves, lanes), a scalar one a row
of (waves,); an instruction runs for all *active* waves together, those at the same place of the program. A write goes
to `mask` only, the lanes of active waves that EXEC enables.

Every register knows where it has been written. Compiled code does compute with registers that were not, where the
result does not matter (a lane of a vector that nobody reads), so lane-wise instructions mark their result as undefined
and go on; everything else that reads such a lane is refused: stores, addresses, comparisons, scalar instructions,
matrices. Rows that are defined everywhere skip all of this (`_v_full`, `_s_full`).
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np

from .chips import Chip
from .counters import Counters
from .errors import EmulatorError
from .memory import Memory
from .registers import AGPR, EXEC, FLAT_SCRATCH, HALF, NULL, SCALAR, SCALARS, register_name

if TYPE_CHECKING:
    from .lds import Lds


class Waves:
    """`count` waves of `chip.width` lanes; `group` is each wave's workgroup in the batch."""

    memory: Memory
    lds: Lds
    scratch: np.ndarray  # (waves, lanes, bytes)
    code_base: int  # address of the image

    def __init__(self, chip: Chip, group: np.ndarray, vector_limit: int, agpr_limit: int):
        self.chip, self.group, self.count, self.width = chip, group, len(group), chip.width
        self.v = np.zeros((2 * AGPR, self.count, self.width), np.uint32)
        self._limits = (vector_limit, AGPR + agpr_limit)
        self._v_known = np.zeros(self.v.shape, bool)
        self._v_full = [False] * len(self.v)
        self.s = np.zeros((SCALARS, self.count), np.uint32)
        self._s_known = np.zeros(self.s.shape, bool)
        self._s_full = [False] * SCALARS
        self._s_known[NULL], self._s_full[NULL] = True, True
        self.scc = np.zeros(self.count, bool)
        self.counters = Counters(self.count)
        self._bit = np.arange(32, dtype=np.uint32)
        self.lane = np.arange(self.width)
        self.activate(np.ones(self.count, bool))

    # -- who runs ------------------------------------------------------------------------------------------------
    def activate(self, active: np.ndarray) -> None:
        """Run the next instructions for these waves."""
        self.active, self.all_active = active, bool(active.all())
        self._mask: np.ndarray | None = None

    @property
    def mask(self) -> np.ndarray:
        """(waves, lanes): those that the current instruction works for."""
        if self._mask is None:
            self._mask = self._bits(EXEC) & self.active[:, None]
            self.whole = bool(self._mask.all())
        return self._mask

    def fail(self, message: str, wave: int, lane: int | None = None) -> EmulatorError:
        """An error of a wave, and of a lane."""
        where = f"wave {wave} (workgroup {self.group[wave]} of the batch)"
        return EmulatorError(f"{message}, in {where}" if lane is None else f"{message}, in lane {lane} of {where}")

    def _finished(self, key: int, name: str, what: str, loader: str = "") -> None:
        late = self.counters.unfinished(key, self.active, loader)
        if late:
            raise self.fail(f"{name} is {what} before a wait for {late[1]}cnt covers the load into it", late[0])

    def _vector_finished(self, row: int, what: str, half: int | None = None, loader: str = "") -> None:
        for key in (row, *(row + HALF[i] for i in (0, 1) if half in (None, i))):
            if key in self.counters.pending:
                self._finished(key, register_name(row), what, loader)

    # -- vector registers ----------------------------------------------------------------------------------------
    def vector(self, row: int, lenient: bool = False, half: int | None = None) -> np.ndarray:
        """(waves, lanes) of u32; not to be written to. Of a load into the other `half`, nothing need be known."""
        if self.counters.pending:
            self._vector_finished(row, "read", half)
        if not (self._v_full[row] or lenient):
            self.require(self._v_known[row], row)
        return self.v[row]

    def require(self, known: np.ndarray, row: int, mask: np.ndarray | None = None) -> None:
        """Refuse to use lanes of a register that have not been written."""
        bad = (self.mask if mask is None else mask) & ~known
        if bad.any():
            wave, lane = map(int, np.argwhere(bad)[0])
            raise self.fail(f"{register_name(row)} is read but was never written", wave, lane)

    def known(self, row: int) -> np.ndarray:
        """Where a vector register has been written."""
        if self._v_full[row]:
            self._v_known[row] = True
        return self._v_known[row]

    def unknown(self, rows: list[int], scalars: list[int]) -> np.ndarray | None:
        """(waves, lanes) where any of the registers has not been written; None if nowhere that matters."""
        lacking = [~self._v_known[row] for row in rows if not self._v_full[row]]
        lacking += [~self._s_known[row][:, None] for row in scalars if not self._s_full[row]]
        if not lacking:
            return None
        unknown = functools.reduce(np.logical_or, lacking) & self.mask
        return unknown if unknown.any() else None

    def vector64(self, row: int, lenient: bool = False) -> np.ndarray:
        """Two registers as u64."""
        high = self.vector(row + 1, lenient).astype(np.uint64)
        return high << np.uint64(32) | self.vector(row, lenient)

    def write_vector(
        self,
        row: int,
        value: np.ndarray,
        where: np.ndarray | None = None,
        unknown: np.ndarray | None = None,
        half: int | None = None,
        loader: str = "",
    ) -> None:
        """Write u32 bits to the masked lanes, or to `where`; `unknown` lanes of the value are undefined.

        A load names its counter as `loader`: it may follow another of the same counter, which completes before.
        """
        if row >= self._limits[row >= AGPR]:
            raise EmulatorError(f"{register_name(row)} is beyond the registers that the kernel descriptor asks for")
        if self.counters.pending:
            self._vector_finished(row, "overwritten", half, loader)
        mask = self.mask
        if where is None and self.whole:
            self.v[row] = value
            self._v_full[row] = unknown is None
            if unknown is not None:
                self._v_known[row] = ~unknown
            return
        where = mask if where is None else where
        np.copyto(self.v[row], value, where=where)
        if unknown is not None:
            self.known(row)[where & unknown] = False
            self._v_known[row] |= where & ~unknown
            self._v_full[row] = False
        elif not self._v_full[row]:
            self._v_known[row] |= where

    def write_vector64(self, row: int, value: np.ndarray, where: np.ndarray | None = None, unknown=None) -> None:
        """Write u64 bits to two registers."""
        self.write_vector(row, value.astype(np.uint32), where, unknown)
        self.write_vector(row + 1, (value >> np.uint64(32)).astype(np.uint32), where, unknown)

    # -- scalar registers ----------------------------------------------------------------------------------------
    def scalar(self, row: int, lenient: bool = False) -> np.ndarray:
        """(waves,) of u32; not to be written to."""
        if row + SCALAR in self.counters.pending:
            self._finished(row + SCALAR, register_name(row, True), "read")
        if not (self._s_full[row] or lenient):
            bad = self.active & ~self._s_known[row]
            if bad.any():
                raise self.fail(f"{register_name(row, True)} is read but was never written", int(np.argmax(bad)))
        return self.s[row]

    def scalar64(self, row: int, lenient: bool = False) -> np.ndarray:
        """Two registers as u64; the null register is 0."""
        if row == NULL:
            return np.zeros(self.count, np.uint64)
        return self.scalar(row + 1, lenient).astype(np.uint64) << np.uint64(32) | self.scalar(row, lenient)

    def write_scalar(self, row: int, value: np.ndarray) -> None:
        """Write u32 bits of the active waves."""
        if row == NULL:
            return
        if row + SCALAR in self.counters.pending:
            self._finished(row + SCALAR, register_name(row, True), "overwritten")
        if self.all_active:
            self.s[row], self._s_full[row] = value, True
        else:
            np.copyto(self.s[row], value, where=self.active)
            self._s_known[row] |= self.active
        if row >= EXEC and row < FLAT_SCRATCH:
            self._mask = None

    def write_scalar64(self, row: int, value: np.ndarray) -> None:
        """Write u64 bits to two registers."""
        self.write_scalar(row, value.astype(np.uint32))
        if row != NULL:
            self.write_scalar(row + 1, (value >> np.uint64(32)).astype(np.uint32))

    def write_scc(self, value: np.ndarray) -> None:
        """Set the condition bit of the active waves."""
        np.copyto(self.scc, value, where=self.active)

    # -- masks ---------------------------------------------------------------------------------------------------
    def _bits(self, row: int) -> np.ndarray:
        low = (self.s[row][:, None] >> self._bit & np.uint32(1)).astype(bool)
        if self.width == 32:
            return low
        return np.concatenate([low, (self.s[row + 1][:, None] >> self._bit & np.uint32(1)).astype(bool)], 1)

    def lanes(self, row: int) -> np.ndarray:
        """(waves, lanes): the bits of one or, with 64 lanes, two scalar registers."""
        self.scalar(row)
        if self.width == 64:
            self.scalar(row + 1)
        return self._bits(row)

    def write_lanes(self, row: int, value: np.ndarray) -> None:
        """Write a bit per lane; lanes that are off give 0."""
        bits = np.packbits(value & self.mask, axis=1, bitorder="little").view(np.uint32)
        for i in range(self.width // 32):
            if row != NULL:
                self.write_scalar(row + i, bits[:, i])
