"""What a program's launches on a GPU are for all sizes: which slot of the table each argument has, which sizes it needs.

    layout = Layout(plan, spaces, symbols, device, kernel, name)
    walk = layout.walk(values of the symbols, status pointer)

A new tuple of sizes costs one evaluation of the plan's sizes, one of each kernel's for each tuple that it gets, and an arena.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from math import prod
from typing import Any

from ..arena import find_hosts
from ..arrays import ITEM_SIZE
from ..errors import LaminaRuntimeError
from ..sizes import Size, compile_sizes
from .check import check_grid
from .drivers import Device, Module
from .walk import Copy, Descriptor, Launch, Walk

ALIGN = 256  # bytes, of buffers in the arena
LEAST_HOSTED = 1 << 20  # bytes of one that lies in a result instead; a graph must be told wherever a result has moved

# kernel name -> (its header, its module on the device); see image.py
Kernels = Callable[[str], tuple[Mapping[str, Any], Module]]


class _Kernel:
    """A kernel on the device: its stages' functions, and all its sizes as one function of its symbols and `sms`."""

    def __init__(self, header: Mapping[str, Any], module: Module):
        self.stages = header["stages"]
        self.overlaps = bool(header.get("overlaps"))  # its stages wait for the launch before
        self.functions = [module.function(s["name"], s["shared"]) for s in self.stages]
        self.scratch = len(header["scratch"])
        sizes: list[Size] = [*header["scratch"]]
        for stage in self.stages:
            sizes += stage["grid"]
            for entry in stage["tma"]:
                sizes += [*entry["sizes"], *entry["strides"]]
        self.symbols, self.expressions = [*header["symbols"], "sms"], sizes
        self.sizes = compile_sizes(sizes, self.symbols)


@dataclass(frozen=True)
class _Stage:
    """A stage of one launch: where its parameters begin, the slots that they read (-1: a descriptor), and all slots."""

    spec: Mapping[str, Any]
    function: ctypes.c_void_p
    first: int
    parameters: tuple[int, ...]
    maps: tuple[int, ...]  # the slot of each descriptor's base
    slots: tuple[int, ...]


@dataclass(frozen=True)
class _Row:
    """A launch of a kernel, and the slot of its status word, after which its sizes lie."""

    kernel: _Kernel
    dims: int
    at: int
    stages: tuple[_Stage, ...]


class Layout:
    """The launches of `plan`.

    `spaces` are the spaces of pointers that the caller gives, in order, and how many each has.
    """

    def __init__(
        self,
        plan: Mapping[str, Any],
        spaces: Mapping[str, int],
        symbols: Sequence[str],
        device: Device,
        kernels: Kernels,
        name: str,
    ):
        self._device, self._name, self.rows = device, name, list[_Row]()
        self._starts, self._fixed = {}, 0
        for space, count in spaces.items():
            self._starts[space] = self._fixed
            self._fixed += count
        self._starts["arena"] = self._fixed
        known: dict[str, _Kernel] = {}
        for row in plan["launches"]:
            if row["kernel"] not in known:
                known[row["kernel"]] = _Kernel(*kernels(row["kernel"]))
        self.lifetimes = [(b["first"], b["last"]) for b in plan["arena"]]
        self.arena = len(plan["arena"])
        scratch = self._fixed + self.arena
        for number, row in enumerate(plan["launches"]):
            self.lifetimes += [(number, number)] * known[row["kernel"]].scratch
        at, self._parameters = self._fixed + len(self.lifetimes), list[int]()
        for row in plan["launches"]:
            kernel, dims = known[row["kernel"]], len(row["dims"])
            slots = {"status": at, **{f"symbol:{i}": at + 1 + i for i in range(dims)}}
            slots.update({f"buffer:{i}": self._starts[s] + n for i, (s, n) in enumerate(row["args"])})
            slots.update({f"scratch:{i}": scratch + i for i in range(kernel.scratch)})
            stages = tuple(self._stage(*given, slots) for given in zip(kernel.stages, kernel.functions))
            self.rows.append(_Row(kernel, dims, at, stages))
            scratch, at = scratch + kernel.scratch, at + 1 + dims
        self._slots = at + 1  # the last is for what nobody reads
        self._hosts = {} if symbols else self._free_results(plan)
        sizes: list[Size] = [b["bytes"] for b in plan["arena"]]
        sizes += [d for row in plan["launches"] for d in row["dims"]]
        self.copies = [[self._copy(c, sizes) for c in plan[key]] for key in ("before", "after")]
        self.expressions = sizes  # of the arena's buffers, of every launch's symbols, bytes and offset of every copy
        self._sizes = compile_sizes(sizes, symbols)

    def _free_results(self, plan: Mapping[str, Any]) -> dict[int, tuple[int, int]]:
        """The slots of results, each with its bytes and the launch before which nothing is in it."""
        if "output" not in self._starts:
            return {}
        first: dict[int, int] = {}
        for number, row in enumerate(plan["launches"]):
            for space, index in row["args"]:
                if space == "output":
                    first.setdefault(index, number)
        for copy in plan["before"]:
            first.update({index: 0 for space, index in (copy["to"], copy["from"]) if space == "output"})
        sizes = [prod(b["shape"]) * ITEM_SIZE[b["dtype"]] for b in plan["buffers"]]
        slot, end = self._starts["output"], len(plan["launches"])
        return {slot + n: (size // ALIGN * ALIGN, first.get(n, end)) for n, size in enumerate(sizes)}

    def _stage(self, spec: Mapping[str, Any], function: ctypes.c_void_p, slots: Mapping[str, int]) -> _Stage:
        first, maps = len(self._parameters), tuple(slots[entry["base"]] for entry in spec["tma"])
        parameters = tuple(-1 if a.startswith("tma:") else slots[a] for a in spec["args"])
        self._parameters += parameters
        return _Stage(spec, function, first, parameters, maps, tuple(sorted({*parameters, *maps} - {-1})))

    def _copy(self, copy: Mapping[str, Any], sizes: list[Size]) -> tuple[int, int]:
        """The slots of a copy, whose sizes are appended to the plan's."""
        sizes += [copy["bytes"], copy["offset"]]
        to, source = (self._starts[space] + number for space, number in (copy["to"], copy["from"]))
        return to, source

    def walk(self, values: Sequence[int], status: int, whole: bool = False) -> Walk:
        """The walk for values of the symbols; `status` is the address of an int32 a launch, where failed checks go.

        A stage whose grid is empty is left out, but in a `whole` walk, whose sizes native code changes.
        """
        numbers = iter(self._sizes(*values))
        sizes = list(islice(numbers, self.arena))
        table = (ctypes.c_uint64 * self._slots)()
        found: dict[tuple[Any, ...], tuple[int, ...]] = {}
        rows: list[tuple[_Row, Iterator[int]]] = []
        for number, row in enumerate(self.rows):
            dims = tuple(islice(numbers, row.dims))
            table[row.at] = status + 4 * number
            table[row.at + 1 : row.at + 1 + row.dims] = dims
            key = row.kernel, dims
            if key not in found:
                found[key] = row.kernel.sizes(*dims, self._device.sms)
            rest = iter(found[key])
            sizes += islice(rest, row.kernel.scratch)
            rows.append((row, rest))
        if min(sizes, default=0) < 0:
            raise LaminaRuntimeError(f"program '{self._name}' has a buffer of {min(sizes)} bytes; compile it again")
        slots = list(self._hosts)
        aligned = [-(-s // ALIGN) * ALIGN for s in sizes]
        hosts, offsets, total = find_hosts(aligned, self.lifetimes, list(self._hosts.values()), LEAST_HOSTED)
        homes = tuple(-1 if host < 0 else slots[host] for host in hosts)
        address = ctypes.addressof(table)
        parameters = (ctypes.c_uint64 * max(len(self._parameters), 1))(*[address + 8 * s for s in self._parameters])
        launches = []
        for row, rest in rows:
            for stage in row.stages:
                launch = self._launch(stage, rest, parameters, status, row.kernel.overlaps, whole)
                if launch is not None:
                    launches.append(launch)
        before, after = ([Copy(*at, *islice(numbers, 2)) for at in copies] for copies in self.copies)
        steps = (*before, *launches, *after)
        return Walk(steps, table, parameters, self._fixed, homes, tuple(offsets), total, self._name)

    def _launch(
        self,
        stage: _Stage,
        numbers: Iterator[int],
        parameters: ctypes.Array,
        valid: int,
        overlaps: bool,
        whole: bool,
    ) -> Launch | None:
        """A stage with its sizes; None if it is left out. `valid` is an address that a descriptor may have at first."""
        spec, grid = stage.spec, tuple(islice(numbers, 3))
        check_grid(grid, spec["name"])
        maps = [[list(islice(numbers, len(entry[k]))) for k in ("sizes", "strides")] for entry in spec["tma"]]
        if 0 in grid and not whole:
            return None
        descriptors = []
        for slot, entry, (sizes, strides) in zip(stage.maps, spec["tma"], maps):
            if 0 in grid:  # not launched, and sizes may be what no tensor has
                sizes, strides = [1] * len(sizes), [ALIGN] * len(strides)
            made = self._device.tensor_map(valid, entry, sizes, strides)
            descriptors.append(Descriptor(made, slot))
        for n, (argument, slot) in enumerate(zip(spec["args"], stage.parameters), stage.first):
            if slot < 0:
                parameters[n] = descriptors[int(argument[4:])].map.address
        shape = stage.function, *grid, *spec["block"], spec["shared"]
        config = self._device.overlapping(shape) if overlaps else None
        return Launch(shape, ctypes.addressof(parameters) + 8 * stage.first, tuple(descriptors), stage.slots, config)
