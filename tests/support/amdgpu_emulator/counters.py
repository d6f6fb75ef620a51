"""Which loads are still under way, per wave: what `s_waitcnt` counts.

A load into registers takes the next number of its counter; a wait until at most `n` are left completes all but the
last `n` numbers. Counters count in order, except that scalar loads return in any order: while one is under way, only
a wait for 0 completes anything. Registers between a load and its completion may be neither read nor written.

    vm    vector loads (and stores on gfx9)     loadcnt on gfx12
    vs    vector stores from gfx10 on           storecnt
    lgkm  LDS and scalar loads before gfx12
    ds    LDS                                   dscnt
    km    scalar loads                          kmcnt
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

NAMES = ("vm", "vs", "lgkm", "ds", "km")


class Counters:
    """The counters of `count` waves. Registers are named by any hashable value."""

    def __init__(self, count: int):
        self.issued = {name: np.zeros(count, np.int64) for name in NAMES}
        self.done = {name: np.zeros(count, np.int64) for name in NAMES}
        self._unordered = {name: np.zeros(count, np.int64) for name in NAMES}
        self.pending: dict[int, list[tuple[str, np.ndarray]]] = {}

    def issue(self, name: str, registers: Iterable[int], active: np.ndarray, ordered: bool = True) -> None:
        """Start an operation of the active waves which will write `registers`."""
        issued = self.issued[name]
        issued += active
        if not ordered:
            np.copyto(self._unordered[name], issued, where=active)
        numbers = np.where(active, issued, 0)
        for register in registers:
            self.pending.setdefault(register, []).append((name, numbers))

    def wait(self, name: str, left: int, active: np.ndarray) -> None:
        """Complete all but the last `left` operations of the active waves."""
        done = self.done[name]
        waits = active if left == 0 else active & (self._unordered[name] <= done)
        np.maximum(done, self.issued[name] - left, out=done, where=waits)
        for register, loads in list(self.pending.items()):
            rest = [(n, numbers) for n, numbers in loads if (numbers > self.done[n]).any()]
            if rest:
                self.pending[register] = rest
            else:
                del self.pending[register]

    def unfinished(self, register: int, active: np.ndarray, but: str = "") -> tuple[int, str] | None:
        """A wave for which a load into `register` is under way, and its counter, which is not `but`."""
        for name, numbers in self.pending.get(register, ()):
            if name == but:
                continue
            late = active & (numbers > self.done[name])
            if late.any():
                return int(np.argmax(late)), name
        return None
