"""Launch a kernel: kernel arguments, registers at the start, batches of workgroups."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from .code_object import CodeObject, Kernel
from .errors import EmulatorError
from .lds import Lds
from .memory import Memory
from .program import program_of
from .registers import EXEC, TTMP
from .schedule import Schedule
from .waves import Waves

BATCH = 16384  # lanes that run at once: enough for numpy, few enough for the caches
Shape = tuple[int, int, int]


def fill_arguments(kernel: Kernel, values: Sequence[bytes], grid: Shape, block: Shape, shared: int) -> bytes:
    """The kernel's argument buffer: the bytes of each argument, and the hidden ones as HIP has them."""
    buffer, given = bytearray(kernel.kernarg), list(values)
    for argument in kernel.metadata.get(".args", ()):
        at, size, kind = argument[".offset"], argument[".size"], argument[".value_kind"]
        hidden = kind.startswith("hidden_")
        if not hidden and not given:
            raise EmulatorError(f"too few arguments for kernel '{kernel.name}'")
        value = hidden_argument(kind, grid, block, shared).to_bytes(size, "little") if hidden else given.pop(0)
        if len(value) != size:
            raise EmulatorError(f"an argument of kernel '{kernel.name}' has {size} bytes, not {len(value)}")
        buffer[at : at + size] = value
    if given:
        raise EmulatorError(f"too many arguments for kernel '{kernel.name}'")
    return bytes(buffer)


def pack_arguments(
    kernel: Kernel, values: Sequence[Any], grid: Shape = (1, 1, 1), block: Shape = (1, 1, 1), shared: int = 0
) -> bytes:
    """The kernel's argument buffer: arrays by address, numpy scalars by value, ints with the argument's size."""
    sizes = [a[".size"] for a in kernel.metadata.get(".args", ()) if not a[".value_kind"].startswith("hidden_")]
    packed = [_bytes(value, size) for value, size in zip(values, sizes)]
    return fill_arguments(kernel, [*packed, *(b"" for _ in values[len(sizes) :])], grid, block, shared)


def _bytes(value: Any, size: int) -> bytes:
    if isinstance(value, np.ndarray):
        return struct.pack("<Q", value.ctypes.data)
    return value.to_bytes(size, "little", signed=value < 0) if isinstance(value, int) else np.asarray(value).tobytes()


def hidden_argument(kind: str, grid: Shape, block: Shape, shared: int) -> int:
    """What the runtime passes without being asked; 0 where a kernel of ours has no use for it."""
    for name, sizes in (("block_count", grid), ("group_size", block)):
        if kind.startswith(f"hidden_{name}_"):
            return sizes["xyz".index(kind[-1])]
    known = {"hidden_grid_dims": 1 + max((i for i in (1, 2) if grid[i] * block[i] > 1), default=0)}
    known["hidden_dynamic_lds_size"] = shared
    return known.get(kind, 0)


class Emulator:
    """Kernels of one code object on a memory. `executed` counts the instructions of waves, by name."""

    def __init__(self, data: bytes, memory: Memory | None = None):
        self.code, self.memory = CodeObject(data), memory or Memory()
        self.program = program_of(data, self.code.chip)
        self.memory.add(self.code.image, writable=False, name="the code object")
        self.executed: Counter[str] = Counter()

    def kernel(self, name: str) -> Kernel:
        """A kernel by name."""
        if name not in self.code.kernels:
            raise EmulatorError(f"there is no kernel '{name}'; there are {', '.join(self.code.kernels)}")
        return self.code.kernels[name]

    def launch(self, name: str, grid: Shape, block: Shape, arguments: bytes, shared: int = 0) -> None:
        """Run a grid of workgroups; `arguments` is the argument buffer, `shared` dynamic LDS in bytes."""
        kernel, chip, threads = self.kernel(name), self.code.chip, block[0] * block[1] * block[2]
        if not 0 < threads <= kernel.metadata.get(".max_flat_workgroup_size", 1024):
            raise EmulatorError(f"kernel '{name}' cannot run in workgroups of {threads}")
        if kernel.private and chip.name == "gfx90a":
            raise EmulatorError(f"kernel '{name}' uses scratch, which the emulator has for gfx942 and newer only")
        if len(arguments) < kernel.metadata[".kernarg_segment_size"]:
            raise EmulatorError(f"kernel '{name}' takes {kernel.kernarg} bytes of arguments, not {len(arguments)}")
        if kernel.lds + shared > 64 * 1024:
            raise EmulatorError(f"kernel '{name}' asks for {kernel.lds + shared} bytes of LDS; there are 65536")
        room = np.frombuffer(arguments + bytes(-len(arguments) % 64), np.uint8).copy()
        self.memory.add(room, writable=False, name="the kernel's arguments")
        try:
            groups = [(x, y, z) for z, y, x in product(*(range(n) for n in reversed(grid)))]
            each = max(1, BATCH // (-(-threads // chip.width) * chip.width))
            for start in range(0, len(groups), each):
                self._run(kernel, groups[start : start + each], block, room, shared)
        finally:
            self.memory.remove(room.ctypes.data)

    def _run(self, kernel: Kernel, groups: list[Shape], block: Shape, arguments: np.ndarray, shared: int) -> None:
        chip, threads = self.code.chip, block[0] * block[1] * block[2]
        per_group = -(-threads // chip.width)
        group = np.repeat(np.arange(len(groups)), per_group)
        limits = (kernel.vgprs, 0)
        if chip.generation == 9:
            limits = (kernel.first_agpr, kernel.vgprs - kernel.first_agpr)
        w = Waves(chip, group, *limits)
        w.memory, w.code_base = self.memory, self.code.base
        w.lds = Lds(len(groups), kernel.lds + shared, w.count)
        w.scratch = np.zeros((w.count, w.width, kernel.private), np.uint8)
        thread = (np.arange(w.count) % per_group * w.width)[:, None] + w.lane
        w.write_scalar(EXEC, np.zeros(w.count, np.uint32))
        w.write_scalar(EXEC + 1, np.zeros(w.count, np.uint32))
        lanes = np.packbits(thread < threads, axis=1, bitorder="little").view(np.uint32)
        for i in range(w.width // 32):
            w.write_scalar(EXEC + i, lanes[:, i])
        x, y, z = thread % block[0], thread // block[0] % block[1], thread // (block[0] * block[1])
        w.write_vector(0, (z << 20 | y << 10 | x).astype(np.uint32))
        self._scalars(w, kernel, np.array(groups, np.uint32)[group], arguments.ctypes.data)
        Schedule(self.program, w, kernel.entry, self.executed).run()

    def _scalars(self, w: Waves, kernel: Kernel, ids: np.ndarray, arguments: int) -> None:
        """The initial scalar registers: the argument pointer, and the workgroup's ids after the user SGPRs.

        Other user SGPRs (dispatch and queue pointers …) stay undefined: reading them is an error.
        """
        at = 0
        for bit, count in enumerate((4, 2, 2, 2)):
            if kernel.properties >> bit & 1:
                if bit == 3:
                    w.write_scalar64(at, np.array(arguments, np.uint64))
                at += count
        if self.code.chip.group_registers_in_ttmp:
            w.write_scalar(TTMP + 9, ids[:, 0])
            w.write_scalar(TTMP + 7, ids[:, 1] | ids[:, 2] << np.uint32(16))
            return
        at = kernel.user_sgprs
        for wanted, column in zip(kernel.group_ids, ids.T):
            if wanted:
                w.write_scalar(at, column)
                at += 1


def launch(
    data: bytes, name: str, grid: Sequence[int], block: Sequence[int], arguments: Sequence[Any], shared: int = 0
) -> Mapping[str, int]:
    """Run one kernel on arrays and numbers; how often each instruction ran, per wave."""
    emulator = Emulator(data)
    for number, value in enumerate(arguments):
        if isinstance(value, np.ndarray):
            emulator.memory.add(value, value.flags.writeable, f"argument {number}")
    (gx, gy, gz, *_), (bx, by, bz, *_) = (*grid, 1, 1), (*block, 1, 1)
    shape: tuple[Shape, Shape] = (gx, gy, gz), (bx, by, bz)
    packed = pack_arguments(emulator.kernel(name), arguments, *shape, shared)
    emulator.launch(name, *shape, packed, shared)
    return emulator.executed
