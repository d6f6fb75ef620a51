"""A compiled part on a GPU as a CPython builtin: the table behind `cuda_entry_code`, filled in Python.

`bind(native)` is to `CudaNative` what `native_entry.bind` is to `Native`. With `graphs`, a part of static sizes and
several kernels is launched as a CUDA graph, whose nodes get the pointers that differ from the last call's.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from ..runtime import cuda
from ..runtime.cuda_graph import Graph
from ..runtime.entry import Chain, addresses
from ..runtime.gpu_program import DEVICE_ALIGN
from ..runtime.gpu_walk import Copy, Walk
from . import native_entry, weights
from .cuda_entry_code import cuda_entry_ir
from .entry_table import CUDA_SLOT, STEP_WORDS
from .native_entry import Support, Table

if TYPE_CHECKING:
    from .cuda_launcher import CudaNative
    from .launcher import Call

# Launches from which on a graph is cheaper: a launch costs the CPU 4 µs, a call with a graph of any size 7 (H200).
GRAPH_LAUNCHES = 2

# table slot -> exported name, in libtorch_cpu, libtorch_cuda and the driver
_TORCH = {"get_device_type": "aoti_torch_get_device_type", "get_device_index": "aoti_torch_get_device_index"}
_TORCH_CUDA = {"get_stream": "aoti_torch_get_current_cuda_stream"}
_DRIVER = {
    "current_context": "cuCtxGetCurrent",
    "launch_kernel": "cuLaunchKernel",
    "copy_async": "cuMemcpyAsync",
    "move_map": "cuTensorMapReplaceAddress",
    "graph_launch": "cuGraphLaunch",
    "set_node": "cuGraphExecKernelNodeSetParams",
    "is_capturing": "cuStreamIsCapturing",
}


def bind(native: CudaNative, graphs: bool) -> Callable[..., Any] | None:
    """The builtin for `native`; None where this torch or driver lacks something, and for GPUs of other makers."""
    support = _support() if isinstance(native.program.device, cuda.Device) else None
    return None if support is None else _Entry(native, support, graphs).chain.call


class _Entry:
    """The tables of one part, one for each tuple of sizes, and the slow path behind them."""

    def __init__(self, native: CudaNative, support: Support, graphs: bool):
        self.native = native
        self.chain = Chain(support.method, lambda: _CudaTable(native, support, graphs), self.slow)

    def slow(self, *args: Any) -> tuple[torch.Tensor, ...]:
        """Call in Python, then memoise this call's sizes and weights for the native code."""
        results = self.native(*args)
        symbols = self.native.signature.symbols(args)
        call = self.native.call(symbols)
        head = self.chain.tables[0]
        assert isinstance(head, _CudaTable)
        if head.fits(call, args[: self.native.signature.tensors]):
            table = self.chain.place(symbols)
            if isinstance(table, _CudaTable) and not table.busy:  # else another thread is launching what it describes
                table.memoise(args, call, symbols)
        return results


@dataclass(frozen=True)
class _Sizes:
    """What is launched for one tuple of sizes, as words for the native code."""

    walk: Walk
    steps: ctypes.Array
    maps: ctypes.Array
    offsets: ctypes.Array
    graph: Graph | None
    nodes: ctypes.Array
    previous: ctypes.Array
    kept: list[Any]


class _CudaTable(Table):
    """One call of a part on a GPU."""

    native: CudaNative
    names = CUDA_SLOT

    def __init__(self, native: CudaNative, support: Support, graphs: bool):
        super().__init__(native, support)
        device, program = native.program.device, native.program
        assert isinstance(device, cuda.Device)
        self._device, self._graphs = device, graphs
        self._made: tuple[tuple[int, ...], _Sizes] | None = None
        kinds = {"cpu": 0, "cuda": 1}  # c10::DeviceType
        self.set(
            device_type=kinds[native.device.type],
            device_index=-1 if native.device.index is None else native.device.index,
            device_context=device.context,
            alignment=DEVICE_ALIGN - 1,
            status_words=program.status.address,
            status_count=program.status.count,
            byte_code=support.dtype_codes[torch.uint8],
        )

    @property
    def busy(self) -> bool:
        """True while another thread launches what the table describes."""
        return bool(self.slots[CUDA_SLOT["busy"]])

    def memoise(self, args: tuple[Any, ...], call: Call, symbols: tuple[int, ...]) -> None:
        """Fill the table for calls like this one."""
        native = self.native
        tensors = args[: native.signature.tensors]
        if self._made is None or self._made[0] != symbols:
            self._made = symbols, self._launches(native.program.walk(symbols))
        made = self._made[1]
        constants = native.constants(list(tensors))
        walk = made.walk
        self.buffers = walk.table
        self.kept = [call, constants, made, tensors if native.weight_arguments else None]
        arguments, outputs = self.argument_rows(args, call), self.output_rows(call)
        first = len(native.input_arguments)
        for i, pointer in enumerate(constants.pointers):
            self.buffers[first + i] = pointer
        self.kept += [arguments, outputs]
        self.set(
            buffers=ctypes.addressof(walk.table),
            arguments=len(args),
            argument_table=ctypes.addressof(arguments),
            outputs=len(call.buffers),
            output_table=ctypes.addressof(outputs),
            arena_bytes=walk.bytes,
            arena_count=len(walk.offsets) if walk.bytes else 0,
            arena_first=walk.fixed,
            arena_offsets=ctypes.addressof(made.offsets),
            steps=len(walk.steps),
            step_table=ctypes.addressof(made.steps),
            maps=len(made.maps) // 3,
            map_table=ctypes.addressof(made.maps),
            graph=made.graph.handle if made.graph else 0,
            nodes=len(made.graph.nodes) if made.graph else 0,
            node_table=ctypes.addressof(made.nodes),
            varying=len(made.previous),
            previous=ctypes.addressof(made.previous),
            epoch=weights.epoch(),
            valid=1,
        )

    def _launches(self, walk: Walk) -> _Sizes:
        steps, maps, nodes, kept = list[int](), list[int](), list[int](), list[Any]()
        for step in walk.steps:
            if isinstance(step, Copy):
                row = [0, step.to, step.source, step.size, step.offset]
            else:
                function, *shape = step.shape
                row = [function.value, *shape, ctypes.addressof(step.parameters)]
                for descriptor in step.descriptors:
                    maps += [descriptor.map.address, descriptor.slot, descriptor.map.base]
            steps += row + [0] * (STEP_WORDS - len(row))
        varying = walk.fixed + len(walk.offsets)
        graph = None
        static, kernels = not self.native.program.plan["symbols"], not any(isinstance(s, Copy) for s in walk.steps)
        if self._graphs and static and kernels and len(walk.steps) >= GRAPH_LAUNCHES:
            graph = Graph(self._device, walk)
            for node, parameters, launch in graph.nodes:
                slots = _words([s for s in launch.slots if s < varying])
                kept.append(slots)
                nodes += [node, ctypes.addressof(parameters), ctypes.addressof(slots), len(slots)]
        return _Sizes(walk, _words(steps), _words(maps), _words(walk.offsets), graph, _words(nodes), _words([0] * varying), kept)  # fmt: skip


def _words(values: Any) -> ctypes.Array:
    return (ctypes.c_int64 * len(values))(*values)


@functools.cache
def _support() -> Support | None:
    try:
        found = {
            **addresses(native_entry.torch_library("cpu"), _TORCH),
            **addresses(native_entry.torch_library("cuda"), _TORCH_CUDA),
            **addresses(cuda.driver(), _DRIVER),
        }
    except (OSError, AttributeError):
        return None
    return native_entry.support(cuda_entry_ir(), "cuda_entry", found)
