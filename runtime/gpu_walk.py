"""The launches of one entry of a plan for one tuple of sizes, laid out so that a call only fills in pointers.

    walk = build(plan, order, counts, known sizes, status pointer, device, kernel)
    walk.place(pointers, arena address); walk.launch(stream)

All pointers that a call varies lie in one table (`inputs | weights | persistent | outputs | arena buffers | scratch`),
followed by what does not vary (addresses of status words, symbols). Each launch's parameter array points into it, or at
a TMA descriptor.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .arena import plan_offsets
from .errors import LaminaRuntimeError
from .gpu_check import check_grid
from .gpu_device import Device, Module, TensorMap
from .sizes import Size, evaluate_size

ALIGN = 256  # bytes, of buffers in the arena

# kernel name -> (its header, its module on the device); see gpu_image.py
Kernels = Callable[[str], tuple[Mapping[str, Any], Module]]


@dataclass(frozen=True)
class Descriptor:
    """A TMA descriptor of a launch, and the slot of the table that holds its base pointer."""

    map: TensorMap
    slot: int


@dataclass(frozen=True)
class Launch:
    """One stage, ready for the driver's launch function."""

    shape: tuple[Any, ...]  # function, grid, block, dynamic shared memory
    parameters: ctypes.Array
    descriptors: tuple[Descriptor, ...]
    slots: tuple[int, ...]  # of the table that parameters and descriptors read


@dataclass(frozen=True)
class Copy:
    """Bytes that move from one slot's buffer, from an offset on, to another's."""

    to: int
    source: int
    size: int
    offset: int


@dataclass(frozen=True)
class Walk:
    """What one call does, in order. `table` may be in use by one call at a time."""

    steps: tuple[Launch | Copy, ...]
    table: ctypes.Array
    fixed: int  # slots that the caller gives
    offsets: tuple[int, ...]  # of the arena's buffers, then of scratch
    bytes: int  # of the arena
    name: str

    def place(self, pointers: Sequence[int], arena: int) -> None:
        """Fill the table: the caller's pointers, and an arena of `bytes` bytes."""
        fixed = self.fixed
        if len(pointers) != fixed:
            raise LaminaRuntimeError(f"program '{self.name}' takes {fixed} buffers, got {len(pointers)}")
        self.table[:fixed] = pointers
        if self.bytes:
            self.table[fixed : fixed + len(self.offsets)] = [arena + o for o in self.offsets]

    def launch(self, device: Device, stream: int) -> None:
        """Enqueue everything on `stream`, with the pointers that were placed."""
        launch_kernel, table = device.launcher(), self.table
        for step in self.steps:
            if isinstance(step, Copy):
                device.copy(table[step.to], table[step.source] + step.offset, step.size, stream)
                continue
            for descriptor in step.descriptors:
                descriptor.map.point_to(table[descriptor.slot])
            code = launch_kernel(*step.shape, stream, step.parameters, None)
            if code:
                device.check(code, f"launching a kernel of '{self.name}'")


def build(
    plan: Mapping[str, Any],
    spaces: Mapping[str, int],
    known: Mapping[str, int],
    status: int,
    device: Device,
    kernels: Kernels,
    name: str,
) -> Walk:
    """Lay out the table and the launches of `plan`.

    `spaces` are the spaces of pointers that the caller gives, in order, and how many each has; `known` the values of
    symbols; `status` the address of an int32 per launch, where failed checks store their codes.
    """
    starts, fixed = {}, 0
    for space, count in spaces.items():
        starts[space] = fixed
        fixed += count
    starts["arena"] = fixed
    lifetimes = [(b["first"], b["last"]) for b in plan["arena"]]
    sizes = [evaluate_size(b["bytes"], known) for b in plan["arena"]]
    scratch: list[int] = []  # the first scratch buffer of each launch
    for number, row in enumerate(plan["launches"]):
        header, _ = kernels(row["kernel"])
        local = dict(zip(header["symbols"], _values(row["dims"], known)))
        scratch.append(fixed + len(sizes))
        sizes += _values(header["scratch"], local)
        lifetimes += [(number, number)] * len(header["scratch"])
    if min(sizes, default=0) < 0:
        raise LaminaRuntimeError(f"program '{name}' has a buffer of {min(sizes)} bytes; compile it again")
    offsets, total = plan_offsets([-(-s // ALIGN) * ALIGN for s in sizes], lifetimes)

    constants = sum(1 + len(row["dims"]) for row in plan["launches"])
    table = (ctypes.c_uint64 * (fixed + len(sizes) + constants + 1))()  # the last is for what nobody reads
    at, launches = fixed + len(sizes), list[Launch]()
    for number, row in enumerate(plan["launches"]):
        header, module = kernels(row["kernel"])
        values = _values(row["dims"], known)
        table[at] = status + 4 * number
        table[at + 1 : at + 1 + len(values)] = values
        slots = {"status": at, **{f"symbol:{i}": at + 1 + i for i in range(len(values))}}
        slots.update({f"buffer:{i}": starts[s] + n for i, (s, n) in enumerate(row["args"])})
        slots.update({f"scratch:{i}": scratch[number] + i for i in range(len(header["scratch"]))})
        at += 1 + len(values)
        local = {**dict(zip(header["symbols"], values)), "sms": device.sms}
        stages = (_launch(stage, slots, local, table, module, device, status) for stage in header["stages"])
        launches += [s for s in stages if s is not None]

    def copies(key: str) -> list[Copy]:
        return [
            Copy(starts[c["to"][0]] + c["to"][1], starts[c["from"][0]] + c["from"][1], *_values((c["bytes"], c["offset"]), known))
            for c in plan[key]
        ]  # fmt: skip

    return Walk((*copies("before"), *launches, *copies("after")), table, fixed, tuple(offsets), total, name)


def _launch(
    stage: Mapping[str, Any],
    slots: Mapping[str, int],
    local: Mapping[str, int],
    table: ctypes.Array,
    module: Module,
    device: Device,
    valid: int,
) -> Launch | None:
    """One stage; None if its grid is empty. `valid` is an address that a descriptor may have before it gets its own."""
    grid = tuple(_values(stage["grid"], local))
    check_grid(grid, stage["name"])
    if 0 in grid:
        return None
    descriptors = []
    for entry in stage["tma"]:
        sizes, strides = _values(entry["sizes"], local), _values(entry["strides"], local)
        made = device.tensor_map(valid, entry["type"], sizes, strides, entry["box"], entry.get("swizzle", 0))
        descriptors.append(Descriptor(made, slots[entry["base"]]))
    address = ctypes.addressof(table)
    parameters = (ctypes.c_void_p * max(len(stage["args"]), 1))(
        *(
            descriptors[int(a[4:])].map.address if a.startswith("tma:") else address + 8 * slots[a]
            for a in stage["args"]
        )
    )
    used = {slots[a] for a in stage["args"] if not a.startswith("tma:")} | {d.slot for d in descriptors}
    function = module.function(stage["name"], stage["shared"])
    shape = (function, *grid, *stage["block"], stage["shared"])
    return Launch(shape, parameters, tuple(descriptors), tuple(sorted(used)))


def _values(sizes: Sequence[Size], known: Mapping[str, int]) -> list[int]:
    return [evaluate_size(s, known) for s in sizes]
