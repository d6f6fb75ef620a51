"""A program on a GPU: the plan walked launch by launch, on raw device pointers.

It is used as a LoadedProgram (program.py), and on a stream. A call fills a table of pointers and enqueues launches that read
it (walk.py). A failed run-time check is raised by the next call, or by `check_status` after a synchronisation.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

from ..arrays import ITEM_SIZE
from ..program import Constants, PlannedProgram, Prepared
from .check import check_launches
from .drivers import Device, Memory, Module, StatusWords
from .image import unpack
from .layout import Layout
from .walk import Walk

MEMO = 4096  # tuples of symbol values whose launches are remembered
DEVICE_ALIGN = 16  # what kernels expect of every buffer

# Spaces of pointers that callers give, in order, and the plan's list of each; the same of `init`.
_SPACES = {"input": "inputs", "weight": "weights", "persistent": "persistent", "output": "buffers"}
_INIT_SPACES = ("weight", "persistent")

# allocate(bytes) -> (pointer, what keeps the memory alive)
Allocate = Callable[[int], tuple[int, Any]]


class GpuProgram(PlannedProgram):
    """A program for one device."""

    def __init__(self, manifest: Mapping[str, Any], image: bytes, device: Device, name: str = ""):
        super().__init__(manifest, name)
        self.device, plan = device, self.plan
        header, kernels = unpack(image)
        device.require(header["arch"])
        self._code = {n: unpack(k) for n, k in zip(header["kernels"], kernels)}
        counts = {space: len(plan[key]) for space, key in _SPACES.items()}
        self.headers = {n: described for n, (described, _) in self._code.items()}
        check_launches(plan, counts, self.headers, self.name)
        if plan["init"] is not None:
            check_launches(plan["init"], {s: counts[s] for s in _INIT_SPACES}, self.headers, self.name)
        self._modules: dict[str, Module] = {}
        self._walks: dict[tuple[int, ...], list[Walk]] = {}  # those that no call is using
        self.status = StatusWords(device, len(plan["launches"]))
        self._counts = counts

    # -- calls --------
    def initialize(
        self, weights: Sequence[int], owners: Sequence[Any] = (), stream: int = 0, allocate: Allocate | None = None
    ) -> Constants:
        """Compute what depends on the weights alone; see LoadedProgram.initialize."""
        plan, allocate = self.plan, allocate or self._allocator(stream)
        made, kept = [], list(owners)
        for p in plan["persistent"]:
            pointer, owner = allocate(prod(p["shape"]) * ITEM_SIZE[p["dtype"]])
            made.append(pointer)
            kept.append(owner)
        pointers = (*weights, *made)
        if plan["init"] is not None:
            with self.device.use():
                status = StatusWords(self.device, len(plan["init"]["launches"]))
                counts = {s: self._counts[s] for s in _INIT_SPACES}
                walk = Layout(plan["init"], counts, (), self.device, self._kernel, self.name).walk((), status.pointer)
                kept += [walk, status]
                self._enqueue(walk, pointers, stream, allocate)
        return Constants(pointers, tuple(kept))

    def run(
        self,
        prepared: Prepared,
        inputs: Sequence[int],
        outputs: Sequence[int],
        constants: Constants | None = None,
        stream: int = 0,
        allocate: Allocate | None = None,
    ) -> None:
        """Enqueue one call on `stream`. Pointers must be to device memory, aligned to 16, of the prepared sizes."""
        self.check_status()
        idle = self._walks.get(prepared.symbols)
        if idle is None:
            if len(self._walks) >= MEMO:
                self._walks.clear()
            idle = self._walks.setdefault(prepared.symbols, [])
        try:
            walk = idle.pop()
        except IndexError:  # all are in use, by threads or around a finalizer that calls
            walk = self.walk(prepared.symbols)
        pointers = (*inputs, *(constants or self.constants).pointers, *outputs)
        with self.device.use():
            self._enqueue(walk, pointers, stream, allocate or self._allocator(stream))
        idle.append(walk)

    def check_status(self) -> None:
        """Raise the error of a run-time check that has failed since the last look."""
        found = self.status.take()
        if found is not None:
            number, code = found
            raise self.failure(number << 8 | code)

    def _allocator(self, stream: int) -> Allocate:
        def allocate(size: int) -> tuple[int, Any]:
            memory = Memory(self.device, size, stream)
            return memory.pointer, memory

        return allocate

    def _enqueue(self, walk: Walk, pointers: Sequence[int], stream: int, allocate: Allocate) -> None:
        arena, memory = allocate(walk.bytes) if walk.bytes else (0, None)
        walk.place(pointers, arena)
        walk.launch(self.device, stream)
        del memory  # freed in the stream's order

    # -- preparation --------
    def walk(self, symbols: tuple[int, ...], whole: bool = False) -> Walk:
        """A new walk of one call for symbol values `symbols` (see Layout.walk); its status words are this program's."""
        with self.device.use():
            return self.layout.walk(symbols, self.status.pointer, whole)

    @functools.cached_property
    def layout(self) -> Layout:
        """The launches for all sizes."""
        return Layout(self.plan, self._counts, self._symbols, self.device, self._kernel, self.name)

    def _kernel(self, name: str) -> tuple[dict[str, Any], Module]:
        header, code = self._code[name]
        if name not in self._modules:
            self._modules[name] = self.device.module(code, name)
        return header, self._modules[name]
