"""A CUDA driver without a GPU: "device memory" is the host's, kernels run in the simulator, and calls are recorded.

    fake = FakeDriver(text of the program's kernels at the loops level)
    fake.install(monkeypatch)

The functions are C callbacks, so that native code calls them by address like the real ones.
"""

from __future__ import annotations

import ctypes
import functools
import re
import traceback
from typing import Any

import numpy as np
from mlir import ir
from support.scalar_ops import dtype_of
from support.simulate_gpu import run_stage

from lamina.compiler.api import compile_llvm
from lamina.runtime.gpu import cuda
from lamina.runtime.loader import Image

P, I, U, Z = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint, ctypes.c_size_t
CONTEXT = 0x1000
SMS = 4
LARGEST = 1 << 24  # bytes of a buffer that a kernel reads by its address
POOL = 0x2000
PROGRAMMATIC_STREAM_SERIALIZATION = 6
NO_CONTEXT = (
    "cuDevice",
    "cuCtx",
    "cuDriver",
    "cuGetError",
    "cuMemPool",
    "cuGraphDestroy",
    "cuGraphExecDestroy",
    "cuEvent",
    "cuTensorMap",
)
INVALID_CONTEXT = 201  # CUDA_ERROR_INVALID_CONTEXT
UNKNOWN = 999  # CUDA_ERROR_UNKNOWN


def put(address: int, value: int) -> None:
    """Store a pointer-sized word."""
    ctypes.c_uint64.from_address(address).value = value


def word(address: int) -> int:
    return ctypes.c_uint64.from_address(address).value


def _memory(address: int, count: int, dtype: np.dtype) -> np.ndarray:
    """So many elements at an address."""
    return np.frombuffer((ctypes.c_char * (count * dtype.itemsize)).from_address(address), dtype)


@functools.cache
def current_context() -> dict[str, Any]:
    """The functions that get and set a thread's context, and their code. They are no callbacks, which clear Python's error."""
    libc, key = ctypes.CDLL(None), ctypes.c_uint()
    libc.pthread_key_create(ctypes.byref(key), None)
    get, put = (ctypes.cast(f, P).value for f in (libc.pthread_getspecific, libc.pthread_setspecific))
    code = f"""
define i32 @cuCtxGetCurrent(ptr %to) {{
  %found = call ptr inttoptr (i64 {get} to ptr)(i32 {key.value})
  store ptr %found, ptr %to
  ret i32 0
}}
define i32 @cuCtxSetCurrent(ptr %context) {{
  %code = call i32 inttoptr (i64 {put} to ptr)(i32 {key.value}, ptr %context)
  ret i32 %code
}}"""
    names = "cuCtxGetCurrent", "cuCtxSetCurrent"
    image = Image(compile_llvm(code, names, name="fake_cuda"), "fake_cuda")
    return {"image": image, **{name: ctypes.CFUNCTYPE(I, P)(image.address(name)) for name in names}}


class FakeDriver:
    """The functions of libcuda that the runtime calls. `fail[name] = code` makes the next calls of one fail.

    What works in a context fails where none is current; `contexts` are those that launches had.
    """

    def __init__(self, loops: str = "", capability: tuple[int, int] = (9, 0), devices: int = 1, version: int = 13000):
        self.capability, self.devices, self.version = capability, devices, version
        self.fail: dict[str, int] = {}
        self.calls: list[str] = []
        self.launches: list[tuple[str, tuple[int, ...], int]] = []  # stage, grid, stream
        self.contexts: set[int] = set()
        self.capturing = False
        self._linked = ctypes.create_string_buffer(b"a cubin", 8)
        self._memory: dict[int, Any] = {}
        self._names: list[str] = []
        self.overlapping: list[str] = []  # stages that may begin before the launch before them ends
        self._graphs: list[dict[int, Any]] = []
        self._edges: dict[int, int] = {}
        self._context = ir.Context()
        self._context.enable_multithreading(False)
        self._stages: dict[str, ir.Operation] = {}
        with self._context:  # a module of its own for each kernel
            self._modules = [ir.Module.parse(text) for text in re.split(r"(?m)^// -+ \w+$", loops)]
        for module in self._modules:
            module.operation.walk(self._note)
        for name, argtypes in SIGNATURES.items():
            setattr(self, name, ctypes.CFUNCTYPE(I, *argtypes)(self._wrap(name)))
        vars(self).update(current_context())

    def install(self, monkeypatch: Any) -> FakeDriver:
        """Be what `cuda.driver()` returns."""
        monkeypatch.setattr(cuda, "driver", lambda: self)
        monkeypatch.setattr(cuda, "_devices", {})
        return self

    def _note(self, op: Any) -> ir.WalkResult:
        if op.name == "gpu.func":
            self._stages[ir.StringAttr(op.attributes["sym_name"]).value] = op.operation
        return ir.WalkResult.ADVANCE

    def _wrap(self, name: str) -> Any:
        function = getattr(self, "_" + name, None)

        def call(*args: Any) -> int:
            self.calls.append(name)
            if name in self.fail:
                return self.fail[name]
            if not (name.startswith(NO_CONTEXT) or self.current):
                return INVALID_CONTEXT
            try:
                if function:
                    function(*args)
                return 0
            except Exception:  # nothing above could raise it
                traceback.print_exc()
                return UNKNOWN

        return call

    @property
    def current(self) -> int:
        """The context of this thread, or 0."""
        found = P()
        self.cuCtxGetCurrent(ctypes.byref(found))
        return found.value or 0

    # -- devices -------------------------------------------------------------------------------------------------------
    def _cuDeviceGetCount(self, to: int) -> None:
        I.from_address(to).value = self.devices

    def _cuDeviceGet(self, to: int, index: int) -> None:
        I.from_address(to).value = index

    def _cuDeviceGetName(self, to: int, size: int, device: int) -> None:
        ctypes.memmove(to, b"a fake\0", 7)

    def _cuDeviceGetAttribute(self, to: int, number: int, device: int) -> None:
        I.from_address(to).value = {75: self.capability[0], 76: self.capability[1], 16: SMS}[number]

    def _cuDevicePrimaryCtxRetain(self, to: int, device: int) -> None:
        put(to, CONTEXT + device)

    def _cuDriverGetVersion(self, to: int) -> None:
        I.from_address(to).value = self.version

    def _cuGetErrorString(self, code: int, to: int) -> None:
        put(to, ctypes.cast(ctypes.c_char_p(b"an error"), P).value or 0)

    # -- memory --------------------------------------------------------------------------------------------------------
    def _cuMemPoolCreate(self, to: int, properties: int) -> None:
        put(to, POOL)

    def _cuMemAllocFromPoolAsync(self, to: int, size: int, pool: int, stream: int) -> None:
        assert pool == POOL
        self._allocate(to, size)

    def _allocate(self, to: int, size: int) -> None:
        block = (ctypes.c_char * (size + 256))()
        address = -(-ctypes.addressof(block) // 256) * 256
        self._memory[address] = block
        put(to, address)

    def _cuMemFreeAsync(self, address: int, stream: int) -> None:
        del self._memory[address]

    def _cuMemHostAlloc(self, to: int, size: int, flags: int) -> None:
        self._allocate(to, size)

    def _cuMemFreeHost(self, address: int) -> None:
        del self._memory[address]

    def _cuMemHostGetDevicePointer_v2(self, to: int, address: int, flags: int) -> None:
        put(to, address)

    def _cuMemcpyAsync(self, to: int, source: int, size: int, stream: int) -> None:
        ctypes.memmove(to, source, size)

    def _cuEventCreate(self, to: int, flags: int) -> None:
        put(to, 1)

    # -- code ----------------------------------------------------------------------------------------------------------
    def _cuModuleLoadData(self, to: int, image: int) -> None:
        put(to, 1)

    def _cuLinkComplete(self, state: int, cubin: int, size: int) -> None:
        put(cubin, ctypes.addressof(self._linked))
        put(size, len(self._linked))

    def _cuModuleGetFunction(self, to: int, module: int, name: int) -> None:
        self._names.append((ctypes.string_at(name)).decode())
        put(to, len(self._names))

    def _cuLaunchKernel(self, f: int, gx: int, gy: int, gz: int, bx: int, by: int, bz: int, shared: int, stream: int, parameters: int, extra: int) -> None:  # fmt: skip
        self._run(f, (gx, gy, gz), bx, stream or 0, self._values(f, parameters))

    def _cuLaunchKernelEx(self, config: int, f: int, parameters: int, extra: int) -> None:
        given = cuda.LaunchConfig.from_address(config)
        assert (given.count, word(given.attributes), given.allowed) == (1, PROGRAMMATIC_STREAM_SERIALIZATION, 1)
        self.overlapping.append(self._names[f - 1])
        self._run(f, tuple(given.shape[:3]), given.shape[3], given.stream or 0, self._values(f, parameters))

    def _cuStreamIsCapturing(self, stream: int, to: int) -> None:
        I.from_address(to).value = int(self.capturing)

    def _values(self, f: int, parameters: int) -> list[int]:
        roles = ir.ArrayAttr(self._stages[self._names[f - 1]].attributes["lamina.args"])
        return [word(word(parameters + 8 * i)) for i in range(len(roles))]

    def _run(self, f: int, grid: tuple[int, ...], block: int, stream: int, values: list[int]) -> None:
        name = self._names[f - 1]
        stage = self._stages[name]
        self.launches.append((name, grid, stream))
        self.contexts.add(self.current)
        arguments = []
        with self._context, ir.Location.unknown():
            for value, argument in zip(values, stage.regions[0].blocks[0].arguments):
                if isinstance(argument.type, ir.MemRefType):
                    memref = ir.MemRefType(argument.type)
                    arguments.append(_memory(value, memref.shape[0], dtype_of(memref.element_type)))
                elif str(argument.type).startswith("!llvm.ptr"):  # an address says no size
                    arguments.append(_memory(value, LARGEST, np.dtype(np.uint8)))
                else:
                    arguments.append(np.array([value], np.int64))
            run_stage(stage, grid, block, {}, arguments)

    # -- graphs --------------------------------------------------------------------------------------------------------
    def _cuGraphCreate(self, to: int, flags: int) -> None:
        self._graphs.append({})
        put(to, len(self._graphs))

    def _cuGraphAddKernelNode(self, to: int, graph: int, before: int, count: int, parameters: int) -> None:
        nodes = self._graphs[graph - 1]
        assert count <= len(nodes)
        self._edges[graph] = self._edges.get(graph, 0) + count
        nodes[len(nodes) + 1] = self._node(parameters)
        put(to, len(nodes))

    def _cuGraphAddDependencies_v2(self, graph: int, before: int, after: int, edge: int, count: int) -> None:
        assert (word(before), count) == (word(after) - 1, 1)
        assert ctypes.string_at(edge, 8) == bytes((1, 0, 1, 0, 0, 0, 0, 0)), "from the programmatic port"
        self._edges[graph] = self._edges.get(graph, 0) + 1
        self.overlapping.append(self._names[self._graphs[graph - 1][word(after)][0] - 1])

    def _cuGraphAddDependencies(self, graph: int, before: int, after: int, count: int) -> None:
        assert (word(before), count) == (word(after) - 1, 1)
        self._edges[graph] = self._edges.get(graph, 0) + 1

    def _cuGraphInstantiateWithFlags(self, to: int, graph: int, flags: int) -> None:
        assert self._edges.get(graph, 0) == len(self._graphs[graph - 1]) - 1, "the nodes are a chain"
        self._graphs.append(dict(self._graphs[graph - 1]))
        put(to, len(self._graphs))

    def _cuGraphExecKernelNodeSetParams(self, graph: int, node: int, parameters: int) -> None:
        self._graphs[graph - 1][node] = self._node(parameters)

    def _cuGraphLaunch(self, graph: int, stream: int) -> None:
        for f, grid, block, values in self._graphs[graph - 1].values():
            self._run(f, grid, block, stream or 0, values)

    def _node(self, parameters: int) -> tuple[int, tuple[int, ...], int, list[int]]:
        f = word(parameters)
        shape = (ctypes.c_uint * 7).from_address(parameters + 8)
        return f, tuple(shape[:3]), shape[3], self._values(f, word(parameters + 40))


SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cuDeviceGetCount": (P,),
    "cuDeviceGet": (P, I),
    "cuDeviceGetName": (P, I, I),
    "cuDeviceGetAttribute": (P, I, I),
    "cuDevicePrimaryCtxRetain": (P, I),
    "cuDriverGetVersion": (P,),
    "cuGetErrorString": (I, P),
    "cuStreamSynchronize": (P,),
    "cuMemPoolCreate": (P, P),
    "cuMemPoolSetAttribute": (P, I, P),
    "cuMemAllocFromPoolAsync": (P, Z, P, P),
    "cuMemFreeAsync": (P, P),
    "cuMemHostAlloc": (P, Z, U),
    "cuMemFreeHost": (P,),
    "cuMemHostGetDevicePointer_v2": (P, P, U),
    "cuMemcpyAsync": (P, P, Z, P),
    "cuEventCreate": (P, U),
    "cuEventRecord": (P, P),
    "cuEventQuery": (P,),
    "cuEventSynchronize": (P,),
    "cuEventDestroy_v2": (P,),
    "cuModuleLoadData": (P, P),
    "cuLinkCreate_v2": (U, P, P, P),
    "cuLinkAddData_v2": (P, I, P, Z, P, U, P, P),
    "cuLinkComplete": (P, P, P),
    "cuLinkDestroy": (P,),
    "cuModuleGetFunction": (P, P, P),
    "cuFuncSetAttribute": (P, I, I),
    "cuLaunchKernel": (P, *[U] * 7, P, P, P),
    "cuLaunchKernelEx": (P, P, P, P),
    "cuStreamIsCapturing": (P, P),
    "cuTensorMapEncodeTiled": (P, I, U, P, P, P, P, P, I, I, I, I),
    "cuTensorMapReplaceAddress": (P, P),
    "cuGraphCreate": (P, U),
    "cuGraphAddKernelNode": (P, P, P, Z, P),
    "cuGraphAddDependencies": (P, P, P, Z),
    "cuGraphAddDependencies_v2": (P, P, P, P, Z),
    "cuGraphInstantiateWithFlags": (P, P, ctypes.c_ulonglong),
    "cuGraphExecKernelNodeSetParams": (P, P, P),
    "cuGraphLaunch": (P, P),
    "cuGraphExecDestroy": (P,),
    "cuGraphDestroy": (P,),
}
