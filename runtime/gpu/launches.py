"""A walk as words for native code: the part of an entry's table that its launcher reads (`table.LAUNCH_SLOTS`)."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from .drivers import Device
from .graph import Graph
from .table import STEP_WORDS
from .walk import Copy, Walk

if TYPE_CHECKING:
    from .program import GpuProgram

# Launches from which on a graph is cheaper: a launch costs the CPU 4 µs, a call with a graph of any size 7 (H200).
GRAPH_LAUNCHES = 2


class Launches:
    """`words` of the table for one tuple of sizes, which this object keeps alive; with `graphs`, of a graph where one suits."""

    def __init__(self, device: Device, walk: Walk, graphs: bool):
        self.walk, self.graph = walk, None
        steps, maps, nodes, kept = list[int](), list[int](), list[int](), list[Any]()
        for step in walk.steps:
            if isinstance(step, Copy):
                row = [0, step.to, step.source, step.size, step.offset]
            else:
                function, *shape = step.shape
                config = 0 if step.config is None else ctypes.addressof(step.config)
                row = [function.value, *shape, step.parameters, config]
                for descriptor in step.descriptors:
                    maps += [descriptor.map.address, descriptor.slot, descriptor.map.base]
            steps += row + [0] * (STEP_WORDS - len(row))
        varying = walk.fixed + len(walk.offsets)
        if graphs and len(walk.steps) >= GRAPH_LAUNCHES and not any(isinstance(s, Copy) for s in walk.steps):
            self.graph = Graph(device, walk)
            for node, parameters, launch in self.graph.nodes:
                slots = _words([s for s in launch.slots if s < varying])
                kept.append(slots)
                nodes += [node, ctypes.addressof(parameters), ctypes.addressof(slots), len(slots)]
        self.previous = _words([0] * varying)
        tables = {
            "step_table": _words(steps),
            "map_table": _words(maps),
            "node_table": _words(nodes),
            "arena_homes": _words(walk.homes),
            "arena_offsets": _words(walk.offsets),
            "previous": self.previous,
        }
        self._kept = kept, tables
        self.words = {name: ctypes.addressof(table) for name, table in tables.items()} | {
            "arena_bytes": walk.bytes,
            "arena_count": len(walk.offsets),
            "arena_first": walk.fixed,
            "steps": len(walk.steps),
            "maps": len(maps) // 3,
            "graph": self.graph.handle if self.graph else 0,
            "nodes": len(self.graph.nodes) if self.graph else 0,
            "varying": varying,
        }


def program_words(program: GpuProgram) -> dict[str, int]:
    """The words that all tables of a program share; AttributeError where the driver lacks a function."""
    status = program.status
    found = {
        "device_context": program.device.context,
        "status_words": status.address,
        "status_count": status.count,
    }
    return {**program.device.functions(), **found}


def _words(values: Iterable[int]) -> ctypes.Array:
    listed = list(values)
    return (ctypes.c_int64 * max(len(listed), 1))(*listed)
