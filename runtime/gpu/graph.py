"""A graph of a walk, CUDA's or HIP's: one call of the driver launches all of it.

Nodes run one after another, or overlap, as the launches would. Their parameters point into the walk's table: before a launch
with other pointers the nodes that read them are set anew. So inputs need no copies, and results have memory of their own.
"""

from __future__ import annotations

import ctypes
from typing import Any

from .drivers import Device
from .walk import Launch, Walk

# CUgraphEdgeData: from CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC, to the default port, CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC
_PROGRAMMATIC = bytes((1, 0, 1, 0, 0, 0, 0, 0))


class Graph:
    """The executable graph of the launches of `walk`, which has no copies and must live as long.

    The two drivers' functions differ in their prefix, and the parameters of a node in their order (`Device.node`).
    """

    def __init__(self, device: Device, walk: Walk):
        self.device, self.walk = device, walk
        self.nodes: list[tuple[int, Any, Launch]] = []
        self.handle = 0
        self._graph = ctypes.c_void_p()  # its nodes name those of the executable graph
        with device.use():
            self._make()

    def _make(self) -> None:
        device, graph = self.device, self._graph
        device.call("making a graph", "GraphCreate", ctypes.byref(graph), 0)
        before = ctypes.c_void_p()
        for launch in self.walk.steps:
            assert isinstance(launch, Launch), "only kernels are nodes"
            made, node = device.node(launch.shape, launch.parameters), ctypes.c_void_p()
            overlaps = launch.config is not None and bool(self.nodes)
            known = ctypes.c_size_t(1 if self.nodes and not overlaps else 0)
            given = ctypes.byref(node), graph, ctypes.byref(before), known, ctypes.byref(made)
            device.call("adding a kernel to a graph", "GraphAddKernelNode", *given)
            if overlaps:
                edge, one = (graph, ctypes.byref(before), ctypes.byref(node)), ctypes.c_size_t(1)
                add = device.driver_function("GraphAddDependencies_v2")
                if add(*edge, _PROGRAMMATIC, one):  # not here: one after another
                    device.call("ordering a graph's kernels", "GraphAddDependencies", *edge, one)
            self.nodes.append((node.value or 0, made, launch))
            before = node
        executable = ctypes.c_void_p()
        flags = ctypes.c_ulonglong(0)
        device.call("preparing a graph", "GraphInstantiateWithFlags", ctypes.byref(executable), graph, flags)
        self.handle = executable.value or 0

    def __del__(self) -> None:
        try:
            if self.handle:
                self.device.driver_function("GraphExecDestroy")(ctypes.c_void_p(self.handle))
            if self._graph:
                self.device.driver_function("GraphDestroy")(self._graph)
        except Exception:  # the process is ending
            pass
