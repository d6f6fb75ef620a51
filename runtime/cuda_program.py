"""A program on a GPU: the plan walked launch by launch, on raw device pointers.

    program = CudaProgram(manifest, image, cuda.device(0))
    constants = program.initialize(weight pointers)
    prepared = program.prepare(symbols)
    program.run(prepared, inputs, outputs, constants, stream=stream)

All pointers that a call varies lie in one table (`inputs | weights | persistent | outputs | arena buffers | scratch`),
and each launch's parameter array points into it: a call fills the table and launches. A failed run-time check leaves
its code in memory of the host and is raised by the next call, or by `check_status` after a synchronisation.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from . import cuda
from .arena import plan_offsets
from .arrays import ITEM_SIZE
from .errors import ArtifactError, LaminaRuntimeError
from .gpu_image import unpack
from .program import Constants, LoadedProgram, Prepared
from .sizes import compile_sizes
from .threads import ABI

ALIGN = 256
MEMO = 4096  # tuples of symbol values whose launches are remembered
DEVICE_ALIGN = 16  # what kernels expect of every buffer

# allocate(bytes) -> (pointer, what keeps the memory alive)
Allocate = Callable[[int], tuple[int, Any]]


@dataclass
class _Launch:
    """One stage of a launch, ready for cuLaunchKernel."""

    shape: tuple[Any, ...]  # function, grid, block, dynamic shared memory
    parameters: ctypes.Array
    descriptors: list[tuple[int, int, tuple[Any, ...]]]  # (address, slot of the base pointer, arguments)


@dataclass
class _Walk:
    """The launches of one entry for one tuple of sizes; `table` holds the pointers they use."""

    launches: list[_Launch]
    table: ctypes.Array
    fixed: int  # slots that the caller gives
    offsets: list[int]  # of the arena's buffers, then of scratch
    bytes: int
    before: list[tuple[int, int, int, int]]  # (to slot, from slot, bytes, offset in the source)
    after: list[tuple[int, int, int, int]]
    keep: list[Any]


class CudaProgram(LoadedProgram):
    """A program for one device."""

    def __init__(self, manifest: Mapping[str, Any], image: bytes, device: cuda.Device, name: str = ""):
        plan = manifest["plan"]
        if plan["abi"] != ABI:
            raise ArtifactError(f"the code has kernel ABI {plan['abi']}, this runtime has {ABI}; compile it again")
        self.manifest, self.plan, self.device = manifest, plan, device
        self.name = name or manifest.get("name", "main")
        header, kernels = unpack(image)
        check_device(header["arch"], device)
        self._code = {n: unpack(k) for n, k in zip(header["kernels"], kernels)}
        self._modules: dict[str, cuda.Module] = {}
        self._symbols = [s["name"] for s in plan["symbols"]]
        self._evaluate = compile_sizes(self._expressions(), self._symbols)
        self._lifetimes = [(b["first"], b["last"]) for b in plan["arena"]]
        self._prepared: dict[tuple[int, ...], Prepared] = {}
        self._walks: dict[tuple[int, ...], _Walk] = {}
        self._lock = threading.Lock()
        self._running = threading.Lock()
        self._status = cuda.Mapped(device, len(plan["launches"]))
        self._count = [len(plan[k]) for k in ("inputs", "weights", "persistent", "buffers")]
        self.constants = Constants()

    # -- calls -----------------------------------------------------------------------------------------------------
    def initialize(  # type: ignore[override]
        self,
        weights: Sequence[int],
        owners: Sequence[Any] = (),
        threads: int | None = None,
        stream: int = 0,
        allocate: Allocate | None = None,
    ) -> Constants:
        """Compute what depends on the weights alone; see LoadedProgram.initialize."""
        self.device.use()
        plan, allocate = self.plan, allocate or self._allocator(stream)
        made, kept = [], list(owners)
        for p in plan["persistent"]:
            pointer, owner = allocate(prod(p["shape"]) * ITEM_SIZE[p["dtype"]])
            made.append(pointer)
            kept.append(owner)
        pointers = (*weights, *made)
        if plan["init"] is not None:
            order = ("weight", "persistent")
            status = cuda.Mapped(self.device, len(plan["init"]["launches"]))
            counts = [len(plan["weights"]), len(plan["persistent"])]
            walk = self._walk(plan["init"], order, counts, {}, status)
            kept += [walk, status]
            self._launch(walk, pointers, stream, allocate)
        return Constants(pointers, tuple(kept))

    def run(  # type: ignore[override]
        self,
        prepared: Prepared,
        inputs: Sequence[int],
        outputs: Sequence[int],
        constants: Constants | None = None,
        threads: int | None = None,
        stream: int = 0,
        allocate: Allocate | None = None,
    ) -> None:
        """Enqueue one call on `stream`. Pointers must be to device memory, aligned to 16, of the prepared sizes.

        Without `allocate` the device's context is made current; who gives it has done so.
        """
        if allocate is None:
            self.device.use()
        self.check_status()
        walk = self._walks.get(prepared.symbols)
        if walk is None:
            known = dict(zip(self._symbols, prepared.symbols))
            order = ("input", "weight", "persistent", "output")
            if len(self._walks) >= MEMO:
                self._walks.clear()
            walk = self._walks[prepared.symbols] = self._walk(self.plan, order, self._count, known, self._status)
        pointers = (*inputs, *(constants or self.constants).pointers, *outputs)
        self._launch(walk, pointers, stream, allocate or self._allocator(stream))

    def check_status(self) -> None:
        """Raise the error of a run-time check that has failed since the last look."""
        found = self._status.take()
        if found is not None:
            number, code = found
            raise self.failure(number << 8 | code)

    def _allocator(self, stream: int) -> Allocate:
        def allocate(size: int) -> tuple[int, Any]:
            memory = self.device.allocate(size, stream)
            return memory.pointer, memory

        return allocate

    def _launch(self, walk: _Walk, pointers: Sequence[int], stream: int, allocate: Allocate) -> None:
        launch_kernel, device = cuda.driver().cuLaunchKernel, self.device
        if len(pointers) != walk.fixed:
            raise LaminaRuntimeError(f"program '{self.name}' takes {walk.fixed} buffers, got {len(pointers)}")
        memory = None
        with self._running:
            table = walk.table
            table[: walk.fixed] = pointers
            if walk.bytes:
                base, memory = allocate(walk.bytes)
                table[walk.fixed : walk.fixed + len(walk.offsets)] = [base + o for o in walk.offsets]
            for to, source, size, offset in walk.before:
                device.copy(table[to], table[source] + offset, size, stream)
            for launch in walk.launches:
                for room, slot, arguments in launch.descriptors:
                    cuda.tensor_map(room, table[slot], *arguments)
                code = launch_kernel(*launch.shape, stream, launch.parameters, None)
                if code:
                    cuda.check(code, f"launching a kernel of '{self.name}'")
            for to, source, size, offset in walk.after:
                device.copy(table[to], table[source] + offset, size, stream)
        del memory

    # -- preparation -----------------------------------------------------------------------------------------------
    def _module(self, kernel: str) -> tuple[dict[str, Any], cuda.Module]:
        header, (ptx, cubin) = self._code[kernel]
        if kernel not in self._modules:
            self._modules[kernel] = cuda.Module(self.device, ptx, cubin, kernel)
        return header, self._modules[kernel]

    def _walk(
        self,
        plan: Mapping[str, Any],
        order: Sequence[str],
        counts: Sequence[int],
        known: Mapping[str, int],
        status: cuda.Mapped,
    ) -> _Walk:
        """Lay out the table and the launches of `plan` for sizes `known`."""
        starts = dict(zip(order, (sum(counts[:i]) for i in range(len(counts)))))
        fixed = sum(counts)
        starts["arena"] = fixed
        lifetimes = [(b["first"], b["last"]) for b in plan["arena"]]
        sizes = [_value(b["bytes"], known) for b in plan["arena"]]
        scratch_slots: list[list[int]] = []
        for number, row in enumerate(plan["launches"]):
            header, _ = self._code[row["kernel"]]
            local = dict(zip(header["symbols"], (_value(d, known) for d in row["dims"])))
            scratch_slots.append(list(range(len(sizes), len(sizes) + len(header["scratch"]))))
            sizes += [_value(s, local) for s in header["scratch"]]
            lifetimes += [(number, number)] * len(header["scratch"])
        offsets, total = plan_offsets([-(-s // ALIGN) * ALIGN for s in sizes], lifetimes)
        entries = fixed + len(sizes)
        symbols = sum(len(row["dims"]) for row in plan["launches"])
        table = (ctypes.c_uint64 * (entries + symbols + len(plan["launches"]) + 1))()
        address = ctypes.addressof(table)
        at, keep, launches = entries, [], []
        for number, row in enumerate(plan["launches"]):
            header, module = self._module(row["kernel"])
            values = [_value(d, known) for d in row["dims"]]
            local = {**dict(zip(header["symbols"], values)), "sms": self.device.sms}
            table[at] = status.pointer + 4 * number
            table[at + 1 : at + 1 + len(values)] = values
            slots = {"status": at, **{f"symbol:{i}": at + 1 + i for i in range(len(values))}}
            slots.update({f"buffer:{i}": starts[s] + n for i, (s, n) in enumerate(row["args"])})
            slots.update({f"scratch:{i}": fixed + n for i, n in enumerate(scratch_slots[number])})
            at += 1 + len(values)
            for stage in header["stages"]:
                grid = tuple(_value(g, local) for g in stage["grid"])
                if 0 in grid:
                    continue
                rooms, descriptors = [], []
                for entry in stage["tma"]:
                    memory = (ctypes.c_char * 192)()
                    room = -(-ctypes.addressof(memory) // 64) * 64
                    keep.append(memory)
                    rooms.append(room)
                    sizes_ = [_value(s, local) for s in entry["sizes"]]
                    strides = [_value(s, local) for s in entry["strides"]]
                    arguments = entry["type"], sizes_, strides, entry["box"], entry.get("swizzle", 0)
                    descriptors.append((room, slots[entry["base"]], arguments))
                parameters = (ctypes.c_void_p * max(len(stage["args"]), 1))(
                    *(rooms[int(a[4:])] if a.startswith("tma:") else address + 8 * slots[a] for a in stage["args"])
                )
                function = module.function(stage["name"], stage["shared"])
                block = tuple(stage["block"])
                shape = (function, *grid, *block, stage["shared"])
                launches.append(_Launch(shape, parameters, descriptors))

        def copies(key: str) -> list[Any]:
            return [
                (starts[c["to"][0]] + c["to"][1], starts[c["from"][0]] + c["from"][1],
                 _value(c["bytes"], known), _value(c["offset"], known))
                for c in plan[key]
            ]  # fmt: skip

        return _Walk(launches, table, fixed, offsets, total, copies("before"), copies("after"), keep)


def _value(size: int | str, known: Mapping[str, int]) -> int:
    """The value of a size expression."""
    if isinstance(size, int):
        return size
    return compile_sizes([size], list(known))(*known.values())[0]


def check_device(arch: str, device: cuda.Device) -> None:
    """A LaminaRuntimeError unless code for `arch` (such as sm_90a) runs on `device`."""
    number = arch.removeprefix("sm_").rstrip("a")
    wanted = int(number[:-1]), int(number[-1])
    fits = device.capability == wanted if arch.endswith("a") else device.capability >= wanted
    if not fits:
        raise LaminaRuntimeError(f"the code is for {arch}, and {device} cannot run it; compile for {target_of(device)}")


def target_of(device: cuda.Device) -> str:
    """The best target for a device."""
    if device.capability == (9, 0):
        return "sm_90a"
    if device.capability >= (8, 0):
        return "sm_80"
    raise LaminaRuntimeError(f"{device} is too old; compute capability 8.0 or newer is needed")
