"""Run a batch of workgroups: which waves go next, barriers, the end.

All waves at the lowest address run together until they part (a branch, a barrier, the end) or reach an address where
others wait, which they then join. So waves that part in a loop or in a branch meet again behind it.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from .errors import EmulatorError, UnknownInstruction
from .program import Kind, Program
from .waves import Waves

LIMIT = 5_000_000  # instructions of a batch: beyond, the program does not end
_NEVER = np.iinfo(np.int64).max


class Schedule:
    """The places of the waves of a batch. `executed` counts instructions of waves by name."""

    def __init__(self, program: Program, waves: Waves, entry: int, executed: Counter[str]):
        self.program, self.waves, self.executed = program, waves, executed
        self.place = np.full(waves.count, entry, np.int64)
        self.ended = np.zeros(waves.count, bool)
        self.waiting = np.zeros(waves.count, bool)  # at a barrier
        self.signalled = np.zeros(waves.count, bool)
        self.steps = 0

    def run(self) -> None:
        """Run until all waves have ended."""
        with np.errstate(all="ignore"):
            while not self.ended.all():
                if not (runs := ~self.ended & ~self.waiting).any():
                    raise self._stuck()
                self._run_together(runs)

    def _run_together(self, runs: np.ndarray) -> None:
        """Run the waves at the lowest address until something parts or joins them."""
        w, places = self.waves, np.where(runs, self.place, _NEVER)
        place = int(places.min())
        active = places == place
        others = places[~active]
        join = int(others.min()) if len(others) else _NEVER
        w.activate(active)
        count = int(active.sum())
        while place < join:
            step = self._step(place)
            self.steps += 1
            self.executed[step.instruction.name] += count
            try:
                result = step.run(w)
            except EmulatorError as error:
                raise type(error)(f"{w.chip.name}, {step.instruction}: {error}") from None
            place = step.next
            if step.kind is Kind.PLAIN:
                continue
            if step.kind is Kind.BRANCH:
                taken = result & active
                if not taken.any():
                    continue
                if taken.sum() == count:
                    place = step.target
                    if self.steps > LIMIT:
                        raise EmulatorError(f"{w.chip.name}: no end after {LIMIT} instructions, at {step.instruction}")
                    if place <= step.instruction.address:  # waves that wait further up go first
                        break
                    continue
                self.place[active] = np.where(taken, step.target, place)[active]
                return
            self._part(step.kind, result, active, place)
            return
        self.place[active] = place

    def _step(self, place: int):
        try:
            return self.program.step(place)
        except UnknownInstruction:
            raise
        except (KeyError, ValueError, IndexError) as error:
            shown = self.program.instructions[place]
            raise EmulatorError(f"{self.program.chip.name}: the emulator cannot read {shown}: {error!r}") from error

    def _part(self, kind: Kind, result: np.ndarray, active: np.ndarray, place: int) -> None:
        """What ends a run: jumps, barriers, the end."""
        self.place[active] = result[active] if kind is Kind.JUMP else place
        if kind is Kind.END:
            self.ended |= active
        elif kind is Kind.SIGNAL:
            self._arrive(active)
            return
        elif kind is Kind.BARRIER:
            if self.program.chip.generation < 12:
                self._arrive(active)
            self.waiting |= active
        self._release()

    def _arrive(self, active: np.ndarray) -> None:
        self.signalled |= active
        done = self.waves.counters.done[self.waves.chip.lds_counter]
        self._complete = np.where(active, done, getattr(self, "_complete", done))

    def _release(self) -> None:
        """Let the workgroups go whose waves have all arrived; waves that ended count no more."""
        groups = np.unique(self.waves.group[self.waiting])
        for group in groups:
            members = (self.waves.group == group) & ~self.ended
            if self.signalled[members].all():
                np.copyto(self.waves.lds.synchronized, self._complete, where=members)
                self.waves.lds.barriers[group] += 1
                self.waiting &= ~members
                self.signalled &= ~members

    def _stuck(self) -> EmulatorError:
        wave = int(np.argmax(self.waiting))
        return EmulatorError(
            f"{self.program.chip.name}: wave {wave} waits at a barrier before {int(self.place[wave]):#x} that others never reach"
        )
