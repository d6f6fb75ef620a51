"""LDS: the memory that the waves of a workgroup share, with a check of the order between waves.

An access is ordered before one of another wave only if the first wave waited for it and then passed a barrier. So
each word remembers who last wrote and read it and as which number of that wave's counter; `synchronized` has for each
wave the number up to which its accesses were complete at its last barrier. Of several readers since a barrier, only
that they are several is known: then no wave may write before the next one. Accesses below a word are not checked.
"""

from __future__ import annotations

import numpy as np

from .access import Access, access_of, atomic_of, run_atomic
from .chips import Chip
from .disassembly import Instruction
from .operands import I64, U32, parse_operand, vector_reader
from .registry import Run, builds, refuse
from .waves import Waves

_NOBODY = -1


class Lds:
    """The LDS of `groups` workgroups, `size` bytes each."""

    def __init__(self, groups: int, size: int, waves: int):
        self.size, self._words = size, -(-size // 4)
        self.data = np.zeros((groups, 4 * self._words), np.uint8)
        count = groups * self._words
        self.known = np.zeros(count, bool)
        self._writer, self._written = np.full(count, _NOBODY), np.zeros(count, np.int64)
        self._reader, self._read = np.full(count, _NOBODY), np.zeros(count, np.int64)
        self._several = np.full(count, _NOBODY)  # the barrier after which several waves read
        self.synchronized = np.zeros(waves, np.int64)
        self.barriers = np.zeros(groups, np.int64)  # that each workgroup has passed

    def _open(self, who: np.ndarray, number: np.ndarray, words: np.ndarray, waves: np.ndarray) -> np.ndarray:
        """Words of accesses to which another wave's last access is not complete."""
        other = who[words]
        return (other != waves) & (other != _NOBODY) & (number[words] > self.synchronized[other])

    def _passed(self, w: Waves, waves: np.ndarray) -> np.ndarray:
        return self.barriers[w.group[waves]][:, None]

    def _checked(self, w: Waves, addresses: np.ndarray, size: int, what: str) -> tuple[np.ndarray, np.ndarray]:
        """The waves of the masked lanes, and the word of each of their accesses (n, words)."""
        bad = (addresses < 0) | (addresses + size > self.size)
        if bad.any():
            self._fail(
                w, bad, f"LDS {what} of {size} bytes at {int(addresses[np.argmax(bad)])} is outside of {self.size}"
            )
        waves = np.nonzero(w.mask)[0]
        words = (w.group[waves] * self._words + addresses // 4)[:, None] + np.arange(max(size // 4, 1))
        return waves, words

    def _fail(self, w: Waves, bad: np.ndarray, message: str) -> None:
        wave, lane = map(int, np.argwhere(w.mask)[int(np.argmax(bad))])
        raise w.fail(message, wave, lane)

    def load(self, w: Waves, addresses: np.ndarray, size: int, numbers: np.ndarray) -> np.ndarray:
        """(accesses, size) bytes for the masked lanes."""
        waves, words = self._checked(w, addresses, size, "load")
        unwritten = np.any(~self.known[words], axis=1)
        if unwritten.any():
            self._fail(
                w,
                unwritten,
                f"LDS at {int(addresses[np.argmax(unwritten)])} is read but was never written",
            )
        if size >= 4:
            race = np.any(self._open(self._writer, self._written, words, waves[:, None]), axis=1)
            if race.any():
                writer = int(self._writer[words[np.argmax(race)]].max())
                self._fail(w, race, f"LDS at {int(addresses[np.argmax(race)])} is read while wave {writer} writes it")
            several = self._open(self._reader, self._read, words, waves[:, None])
            self._reader[words], self._read[words] = waves[:, None], numbers[waves][:, None]
            several |= self._reader[words] != waves[:, None]
            self._several[words[several]] = np.broadcast_to(self._passed(w, waves), words.shape)[several]
        return self.data[w.group[waves][:, None], addresses[:, None] + np.arange(size)]

    def store(self, w: Waves, addresses: np.ndarray, values: np.ndarray, numbers: np.ndarray) -> None:
        """Write a row of `values` for each masked lane."""
        size = values.shape[1]
        waves, words = self._checked(w, addresses, size, "store")
        places = w.group[waves][:, None], addresses[:, None] + np.arange(size)
        if size >= 4:
            changes = np.any(self.data[places] != values, axis=1)
            race = self._open(self._writer, self._written, words, waves[:, None])
            race |= self._open(self._reader, self._read, words, waves[:, None])
            race = np.any(race | (self._several[words] == self._passed(w, waves)), axis=1)
            if (race & changes).any():
                at = int(addresses[np.argmax(race & changes)])
                self._fail(w, race & changes, f"LDS at {at} is written while another wave uses it")
            self._writer[words], self._written[words] = waves[:, None], numbers[waves][:, None]
        self.data[places] = values
        self.known[words] = True
        if size >= 4 and (self.data[places] != values).any() and (self._writer[words] != waves[:, None]).any():
            lost = np.any(self._writer[words] != waves[:, None], axis=1)
            self._fail(w, lost, f"LDS at {int(addresses[np.argmax(lost)])} is written by two waves at once")

    def update(self, w: Waves, address: int, size: int, wave: int) -> np.ndarray:
        """A writable view for an atomic operation, which is ordered by itself."""
        if address < 0 or address + size > self.size:
            raise w.fail(f"LDS atomic of {size} bytes at {address} is outside of {self.size}", wave)
        group = int(w.group[wave])
        words = slice(group * self._words + address // 4, group * self._words + (address + size - 1) // 4 + 1)
        self.known[words] = True
        self._writer[words] = _NOBODY
        return self.data[group, address : address + size]


def _form(name: str) -> tuple[str, bool, int, Access] | None:
    """(load or store, two addresses, unit of their offsets in accesses, access) of `ds_read2st64_b32` and others."""
    for old, new in (("ds_read", "ds_load"), ("ds_write", "ds_store")):
        name = name.replace(old, new)
    kind, rest = ("load", name[7:]) if name.startswith("ds_load") else ("store", name[8:])
    unit = 64 if "st64" in rest or "stride64" in rest else 1
    two = rest.startswith(("2", "_2addr"))
    for part in ("_2addr_stride64", "_2addr", "2st64", "2"):
        rest = rest.removeprefix(part)
    access = access_of(rest.removeprefix("_"))
    return (kind, two, unit, access) if access else None


def _places(base: np.ndarray, offset: int) -> np.ndarray:
    """Addresses, modulo 2^32: from gfx7 on LLVM gives a base below 0 an offset that leads back."""
    return (base + np.uint32(offset)).astype(I64)


@builds(r"ds_(read|write|load|store)\w+")
def load_store(instruction: Instruction, chip: Chip) -> Run:
    """`ds_read_b32 d, address`, `ds_write2_b32 address, x, y offset0:1 offset1:2`."""
    form = _form(instruction.name)
    if form is None:
        raise refuse(instruction, "the type")
    kind, two, unit, access = form
    operands = [parse_operand(t) for t in instruction.operands]
    address = vector_reader(operands[1] if kind == "load" else operands[0], U32)
    size = access.size
    offsets = [int(instruction.modifiers.get("offset", "0"), 0)]
    if two:
        offsets = [int(instruction.modifiers.get(k, "0"), 0) * size * unit for k in ("offset0", "offset1")]
    if kind == "load":
        rows = [operands[0].row + i * access.registers for i in range(len(offsets))]
        half = operands[0].half if operands[0].half is not None else access.half
    else:
        rows = [o.row for o in operands[1 : 1 + len(offsets)]]
        half = operands[1].half if operands[1].half is not None else access.half
    access = Access(size, access.signed, half)
    loaded = [key for row in rows for key in access.loaded(row)] if kind == "load" else []

    def run(w: Waves) -> None:
        base = np.broadcast_to(address(w), w.mask.shape)[w.mask]
        numbers = w.counters.issued[chip.lds_counter] + 1
        if kind == "load":
            found = [w.lds.load(w, _places(base, offset), size, numbers) for offset in offsets]
            for row, data in zip(rows, found):
                access.write(w, row, data, chip.lds_counter)
        else:
            for row, offset in zip(rows, offsets):
                w.lds.store(w, _places(base, offset), access.read(w, row), numbers)
        w.counters.issue(chip.lds_counter, loaded, w.active)

    return run


@builds(r"ds_(add|sub|rsub|inc|dec|and|or|xor|min|max|wrxchg|storexchg|cmpst|cmpstore|pk_add)_\w+")
def atomic(instruction: Instruction, chip: Chip) -> Run:
    """`ds_add_u32 address, x`, `ds_add_rtn_u32 d, address, x`: lane after lane."""
    name = instruction.name.removeprefix("ds_")
    returns = "_rtn" in name
    operation = atomic_of(name.replace("_rtn", "").replace("wrxchg", "swap").replace("storexchg", "swap"))
    if operation is None:
        raise refuse(instruction, "the operation")
    operands = [parse_operand(t) for t in instruction.operands]
    old = operands.pop(0) if returns else None
    address, offset = vector_reader(operands[0], U32), int(instruction.modifiers.get("offset", "0"), 0)
    access = Access(operation.size)

    def run(w: Waves) -> None:
        addresses = _places(np.broadcast_to(address(w), w.mask.shape)[w.mask], offset)
        values = np.concatenate([access.read(w, o.row) for o in operands[1:]], 1)
        waves, made = np.nonzero(w.mask)[0], []
        for wave, place, value in zip(waves, addresses, values):
            target = w.lds.update(w, int(place), operation.size, int(wave))
            made.append(run_atomic(operation, target, value.tobytes(), chip.generation > 9 and "cmpst" in name))
        if old:
            access.write(w, old.row, np.frombuffer(b"".join(made), np.uint8).reshape(len(made), operation.size))
        loaded = access.loaded(old.row) if old else []
        w.counters.issue(chip.lds_counter, loaded, w.active)

    return run
