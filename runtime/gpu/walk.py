"""The launches of one entry of a plan for one tuple of sizes, laid out so that a call only fills in pointers.

    walk = layout.walk(values of the symbols, status pointer)       # layout.py
    walk.place(pointers, arena address); walk.launch(device, stream)

All pointers that a call varies lie in one table (`inputs | weights | persistent | outputs | arena buffers | scratch`),
followed by what does not vary (addresses of status words, symbols). Parameters of launches point into it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import LaminaRuntimeError
from .drivers import Device

if TYPE_CHECKING:
    from .cuda import TensorMap


@dataclass(frozen=True)
class Descriptor:
    """A TMA descriptor of a launch, and the slot of the table that holds its base pointer."""

    map: TensorMap
    slot: int


@dataclass(frozen=True)
class Launch:
    """One stage, ready for the driver's launch function."""

    shape: tuple[Any, ...]  # function, grid, block, dynamic shared memory
    parameters: int  # the address of the array of the addresses of its arguments
    descriptors: tuple[Descriptor, ...]
    slots: tuple[int, ...]  # of the table that parameters and descriptors read
    config: ctypes.Structure | None  # from `Device.overlapping`


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
    parameters: ctypes.Array  # of all launches, which point into it
    fixed: int  # slots that the caller gives
    homes: tuple[int, ...]  # of the arena's buffers, then of scratch: the slot of a result where it lies, or -1
    offsets: tuple[int, ...]  # of the same, from there or in the arena
    bytes: int  # of the arena
    name: str

    def place(self, pointers: Sequence[int], arena: int) -> None:
        """Fill the table: the caller's pointers, and an arena of `bytes` bytes."""
        fixed = self.fixed
        if len(pointers) != fixed:
            raise LaminaRuntimeError(f"program '{self.name}' takes {fixed} buffers, got {len(pointers)}")
        self.table[:fixed] = pointers
        bases = (arena if home < 0 else pointers[home] for home in self.homes)
        self.table[fixed : fixed + len(self.offsets)] = [base + o for base, o in zip(bases, self.offsets)]

    def launch(self, device: Device, stream: int) -> None:
        """Enqueue everything on `stream`, with the pointers that were placed."""
        launch_kernel, table = device.driver_function("LaunchKernel"), self.table
        for step in self.steps:
            if isinstance(step, Copy):
                device.copy(table[step.to], table[step.source] + step.offset, step.size, stream)
                continue
            for descriptor in step.descriptors:
                descriptor.map.point_to(table[descriptor.slot])
            if step.config is None:
                code = launch_kernel(*step.shape, stream, step.parameters, None)
            else:
                code = device.launch_overlapping(step.config, step.shape[0], stream, step.parameters)
            if code:
                device.check(code, f"launching a kernel of '{self.name}'")
