"""Vector loads, stores and atomics on global memory (global, flat, buffer) and private memory (scratch)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .access import access_of, atomic_of, run_atomic
from .chips import Chip
from .disassembly import Instruction
from .memory import Fault
from .operands import I64, U32, U64, parse_operand, scalar_reader, vector_reader
from .registry import Run, builds, refuse
from .waves import Waves

Addresses = Callable[[Waves], np.ndarray]


def _located(w: Waves, fault: Fault) -> Exception:
    wave, lane = np.argwhere(w.mask)[fault.lane]
    return w.fail(str(fault), int(wave), int(lane))


def _counters(instruction: Instruction, chip: Chip, stores: bool) -> tuple[str, ...]:
    """The counters that an access takes part in; flat ones might go to LDS as well."""
    first = chip.store_counter if stores else "vm"
    return (first, chip.lds_counter) if instruction.name.startswith("flat_") else (first,)


def _addresses(instruction: Instruction, vector: str, scalar: str) -> Addresses:
    """(waves, lanes) of u64: vector [+ scalar] + offset."""
    offset = np.array(int(instruction.modifiers.get("offset", "0"), 0), I64).view(U64)
    address = parse_operand(vector)
    if scalar in ("off", "null", ""):
        whole = vector_reader(address, U64)
        return lambda w: np.broadcast_to(whole(w) + offset, w.mask.shape)
    base, part = scalar_reader(parse_operand(scalar), U64), vector_reader(address, U32)
    return lambda w: np.broadcast_to(base(w)[:, None] + part(w) + offset, w.mask.shape)


@builds(r"(global|flat)_(load|store)_(?!lds|tr|block)\w+")
def load_store(instruction: Instruction, chip: Chip) -> Run:
    """`global_load_dwordx4 d, address, off|base`; `global_store_dword address, data, off|base`."""
    kind, suffix = instruction.name.split("_", 2)[1:]
    access = access_of(suffix)
    if access is None:
        raise refuse(instruction, "the type")
    operands = [*instruction.operands, "off"]
    data = parse_operand(operands[0 if kind == "load" else 1])
    addresses = _addresses(instruction, operands[1 if kind == "load" else 0], operands[2])
    counters = _counters(instruction, chip, kind == "store")
    loaded = access.loaded(data.row) if kind == "load" else []

    def run(w: Waves) -> None:
        try:
            if kind == "load":
                access.write(w, data.row, w.memory.load(addresses(w)[w.mask], access.size), counters[0])
            else:
                w.memory.store(addresses(w)[w.mask], access.read(w, data.row))
        except Fault as fault:
            raise _located(w, fault) from None
        for counter in counters:
            w.counters.issue(counter, loaded, w.active)

    return run


@builds(r"(global|flat)_atomic_\w+")
def atomic(instruction: Instruction, chip: Chip) -> Run:
    """`global_atomic_add [old,] address, data, off|base`: lane after lane."""
    operation = atomic_of(instruction.name.split("_atomic_")[1])
    if operation is None:
        raise refuse(instruction, "the operation")
    m = instruction.modifiers
    returns = "glc" in m or m.get("th") == "TH_ATOMIC_RETURN" or ("sc0" in m and chip.name == "gfx942")
    operands = [*instruction.operands, "off"]
    old = parse_operand(operands.pop(0)) if returns else None
    addresses, data = _addresses(instruction, operands[0], operands[2]), parse_operand(operands[1])
    counters = _counters(instruction, chip, not returns)
    access = access_of({4: "b32", 8: "b64"}[operation.size])
    taken = access_of({4: "b32", 8: "b64", 16: "b128"}[operation.size * (2 if operation.compares else 1)])
    assert access and taken

    def run(w: Waves) -> None:
        values, made = taken.read(w, data.row), []
        for lane, (address, value) in enumerate(zip(addresses(w)[w.mask], values)):
            try:
                place = w.memory.update(int(address), operation.size)
            except Fault as fault:
                raise _located(w, Fault(str(fault), lane)) from None
            made.append(run_atomic(operation, place, value.tobytes(), True))
        loaded = []
        if old:
            rows = np.frombuffer(b"".join(made), np.uint8).reshape(len(made), operation.size)
            access.write(w, old.row, rows, counters[0])
            loaded = access.loaded(old.row)
        for counter in counters:
            w.counters.issue(counter, loaded, w.active)

    return run


@builds(r"buffer_(load|store)_(?!lds|format)\w+")
def buffer(instruction: Instruction, chip: Chip) -> Run:
    """`buffer_load_dword d, index, resource, scalar offset offen`: raw buffers; beyond the end a load gives 0."""
    kind, suffix = instruction.name.split("_", 2)[1:]
    access = access_of(suffix)
    if access is None or "idxen" in instruction.modifiers or "lds" in instruction.modifiers:
        raise refuse(instruction, "the form")
    data, resource = parse_operand(instruction.operands[0]), parse_operand(instruction.operands[2])
    scalar = scalar_reader(parse_operand(instruction.operands[3]), U32)
    index = vector_reader(parse_operand(instruction.operands[1]), U32) if "offen" in instruction.modifiers else None
    immediate = int(instruction.modifiers.get("offset", "0"), 0)
    counters = _counters(instruction, chip, kind == "store")
    loaded = access.loaded(data.row) if kind == "load" else []

    def run(w: Waves) -> None:
        words = w.scalar64(resource.row)
        if (words >> np.uint64(48) & np.uint64(0x3FFF))[w.active].any():
            raise refuse(instruction, "a buffer with a stride")
        base, size = words & np.uint64(2**48 - 1), w.scalar(resource.row + 2)
        offset = np.full(w.mask.shape, immediate, np.uint64) + (index(w) if index else np.uint64(0))
        inside = (offset + np.uint64(access.size) <= size[:, None])[w.mask]
        addresses = (base[:, None] + scalar(w)[:, None] + offset)[w.mask]
        try:
            if kind == "store":
                w.memory.store(addresses[inside], access.read(w, data.row)[inside])
            else:
                found = np.zeros((len(addresses), access.size), np.uint8)
                found[inside] = w.memory.load(addresses[inside], access.size)
                access.write(w, data.row, found, counters[0])
        except Fault as fault:
            raise _located(w, Fault(str(fault), int(np.flatnonzero(inside)[fault.lane]))) from None
        for counter in counters:
            w.counters.issue(counter, loaded, w.active)

    return run


@builds(r"scratch_(load|store)_\w+")
def scratch(instruction: Instruction, chip: Chip) -> Run:
    """Private memory of each lane: `scratch_load_dword d, vector|off, scalar|off offset:4`."""
    kind, suffix = instruction.name.split("_", 2)[1:]
    access = access_of(suffix)
    if access is None:
        raise refuse(instruction, "the type")
    order = (
        instruction.operands
        if kind == "load"
        else (instruction.operands[1], instruction.operands[0], *instruction.operands[2:])
    )
    data = parse_operand(order[0])
    vector = None if order[1] in ("off", "null") else vector_reader(parse_operand(order[1]), U32)
    scalar = None if order[2] in ("off", "null") else scalar_reader(parse_operand(order[2]), U32)
    immediate = int(instruction.modifiers.get("offset", "0"), 0)
    counters = _counters(instruction, chip, kind == "store")
    loaded = access.loaded(data.row) if kind == "load" else []

    def run(w: Waves) -> None:
        place = np.full(w.mask.shape, immediate, I64)
        place = place + (vector(w) if vector else 0) + (scalar(w)[:, None] if scalar else 0)
        size = w.scratch.shape[2]
        bad = w.mask & ((place < 0) | (place + access.size > size))
        if bad.any():
            wave, lane = map(int, np.argwhere(bad)[0])
            raise w.fail(f"{kind} at {int(place[wave, lane])} is outside of {size} bytes of scratch", wave, lane)
        waves, lanes = (x[:, None] for x in np.nonzero(w.mask))
        bytes_ = place[w.mask][:, None] + np.arange(access.size)
        if kind == "load":
            access.write(w, data.row, w.scratch[waves, lanes, bytes_], counters[0])
        else:
            w.scratch[waves, lanes, bytes_] = access.read(w, data.row)
        for counter in counters:
            w.counters.issue(counter, loaded, w.active)

    return run
