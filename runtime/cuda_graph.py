"""A CUDA graph of a walk: one call of the driver launches all of it.

The nodes run one after another, as the launches would. Their parameters point into the walk's table: who launches the
graph with other pointers sets the nodes that read them first (`parameters`, `cuGraphExecKernelNodeSetParams`). So inputs
need no copies, and results lie in memory of their own.
"""

from __future__ import annotations

import ctypes

from . import cuda
from .gpu_walk import Launch, Walk


class KernelNode(ctypes.Structure):
    """`CUDA_KERNEL_NODE_PARAMS` of a launch."""

    _fields_ = [
        ("function", ctypes.c_void_p),
        ("shape", ctypes.c_uint * 7),  # grid, block, dynamic shared memory
        ("parameters", ctypes.c_void_p),
        ("extra", ctypes.c_void_p),
    ]


class Graph:
    """The executable graph of the launches of `walk`, which has no copies. It keeps the walk's modules in use."""

    def __init__(self, device: cuda.Device, walk: Walk):
        device.use()
        self.device, self.walk = device, walk
        self.nodes: list[tuple[int, KernelNode, Launch]] = []
        self.handle = 0
        cu, graph = cuda.driver(), ctypes.c_void_p()
        cuda.check(cu.cuGraphCreate(ctypes.byref(graph), 0), "making a graph")
        try:
            before = ctypes.c_void_p()
            for launch in walk.steps:
                assert isinstance(launch, Launch), "only kernels are nodes"
                function, *shape = launch.shape
                made = KernelNode(function, (ctypes.c_uint * 7)(*shape), ctypes.addressof(launch.parameters), None)
                node = ctypes.c_void_p()
                code = cu.cuGraphAddKernelNode(
                    ctypes.byref(node),
                    graph,
                    ctypes.byref(before),
                    ctypes.c_size_t(1 if self.nodes else 0),
                    ctypes.byref(made),
                )
                cuda.check(code, "adding a kernel to a graph")
                self.nodes.append((node.value or 0, made, launch))
                before = node
            executable = ctypes.c_void_p()
            code = cu.cuGraphInstantiateWithFlags(ctypes.byref(executable), graph, ctypes.c_ulonglong(0))
            cuda.check(code, "preparing a graph")
            self.handle = executable.value or 0
        finally:
            self._graph = graph  # its nodes name those of the executable graph

    def __del__(self) -> None:
        try:
            if self.handle:
                cuda.driver().cuGraphExecDestroy(ctypes.c_void_p(self.handle))
            cuda.driver().cuGraphDestroy(self._graph)
        except Exception:  # the process is ending
            pass
