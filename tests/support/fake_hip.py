"""A libamdhip64 without a GPU: a shared library whose functions run here, with kernels in the emulator.

    fake = FakeHip("gfx942")
    fake.install(monkeypatch, tmp_path)      # lamina.runtime.gpu.hip now loads it

The library is LLVM IR that jumps through a table of Python callbacks, linked by our linker: no C compiler is needed,
and native code may call its functions by address. "Device memory" is the host's, filled with NaNs when allocated; a
kernel may touch what was allocated and nothing else. What the emulator refuses is the text of the launch's error.
"""

from __future__ import annotations

import ctypes
import functools
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from llvmlite import binding as llvm
from support.amdgpu_emulator import Emulator, EmulatorError, Memory
from support.amdgpu_emulator.launch import fill_arguments

from lamina.runtime.gpu import hip
from lamina.targets.linker import link

P, I, U, Z, L = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint, ctypes.c_size_t, ctypes.c_ulonglong
INVALID, OUT_OF_MEMORY, BAD_IMAGE, LAUNCH_FAILED = 1, 2, 200, 719
UNITS = 4  # compute units
NAME_AT, ARCH_AT = 0, 1160  # in hipDeviceProp_t of ROCm 6 (R0600)
BUFFER, BUFFER_SIZE, END = 1, 2, 3  # keys of hipModuleLaunchKernel's `extra`
ALIGN = 256
POOL = 0x2000


def _put(address: int, value: int) -> None:
    ctypes.c_uint64.from_address(address).value = value


def _word(address: int) -> int:
    return ctypes.c_uint64.from_address(address).value


class Anywhere(Memory):
    """All memory of this process: torch's allocator does not tell what it gives."""

    def load(self, addresses, size):
        return np.array([list(ctypes.string_at(int(a), size)) for a in addresses], np.uint8).reshape(-1, size)

    def store(self, addresses, values):
        for a, row in zip(addresses, values):
            ctypes.memmove(int(a), row.tobytes(), len(row))


class FakeHip:
    """The functions of libamdhip64 that the runtime calls. `fail[name] = code` makes the next calls of one fail."""

    def __init__(self, chip: str = "gfx942", devices: int = 1, full_name: str = ""):
        self.chip, self.full_name, self.devices = chip, full_name or f"{chip}:sramecc+:xnack-", devices
        self.fail: dict[str, int] = {}
        self.calls: list[str] = []
        self.launches: list[tuple[str, tuple[int, ...], int]] = []  # kernel, grid, stream
        self.executed: Counter[str] = Counter()  # instructions of waves
        self.error = b"no error"
        self.memory, self.blocks = Memory(), dict[int, np.ndarray]()
        self._modules: list[Emulator] = []
        self._functions: list[tuple[Emulator, str]] = []
        self._graphs: list[dict[int, tuple[Any, ...]]] = []
        self._callbacks = [
            ctypes.CFUNCTYPE(I, *types)(functools.partial(self._call, name)) for name, types in SIGNATURES.items()
        ]
        self._text = ctypes.CFUNCTYPE(P, I)(self._error_text)

    def install(self, monkeypatch: Any, folder: Path) -> FakeHip:
        """Be the library that `lamina.runtime.gpu.hip` finds."""
        path = folder / "libamdhip64.so"
        path.write_bytes(_library())
        table = (P * (len(SIGNATURES) + 1)).in_dll(ctypes.CDLL(str(path)), "table")
        for i, callback in enumerate((*self._callbacks, self._text)):
            table[i] = ctypes.cast(callback, P).value
        monkeypatch.setattr(hip, "_LIBRARIES", (str(path),))
        load = hip.driver.__wrapped__

        def driver() -> Any:
            library = load()
            library.fake = self  # the callbacks must live as long as they may be called
            return library

        monkeypatch.setattr(hip, "driver", functools.cache(driver))
        monkeypatch.setattr(hip, "_devices", {})
        return self

    def _call(self, name: str, *given: Any) -> int:
        self.calls.append(name)
        if name in self.fail:
            return self.fail[name]
        function = getattr(self, "_" + name, None)
        try:
            return (function(*(x or 0 for x in given)) or 0) if function else 0
        except EmulatorError as error:
            self.error = str(error).encode()
            return LAUNCH_FAILED
        except Exception as error:  # a mistake in the fake: nothing above could raise it
            self.error = repr(error).encode()
            return LAUNCH_FAILED

    def _error_text(self, code: int) -> int:
        self._shown = ctypes.create_string_buffer({OUT_OF_MEMORY: b"out of memory"}.get(code, self.error))
        return ctypes.addressof(self._shown)

    # -- devices -----------------------------------------------------------------------------------------------------
    def _hipGetDeviceCount(self, to: int) -> int:
        I.from_address(to).value = self.devices
        return 0 if self.devices else 100

    def _hipSetDevice(self, index: int) -> int:
        return 0 if index < self.devices else 101

    def _hipGetDevice(self, to: int) -> None:
        I.from_address(to).value = 0

    def _hipGetDevicePropertiesR0600(self, to: int, index: int) -> None:
        ctypes.memset(to, 0, 1472)
        for at, text in ((NAME_AT, "a fake AMD GPU"), (ARCH_AT, self.full_name)):
            ctypes.memmove(to + at, text.encode(), len(text))

    def _hipDeviceGetAttribute(self, to: int, number: int, index: int) -> None:
        I.from_address(to).value = UNITS

    def _hipStreamCreate(self, to: int) -> None:
        _put(to, 1)

    # -- memory ------------------------------------------------------------------------------------------------------
    def _hipMalloc(self, to: int, size: int) -> int:
        if size > 2**32:
            return OUT_OF_MEMORY
        room = np.full(size + ALIGN, 0xFF, np.uint8)
        block = room[-room.ctypes.data % ALIGN :][:size]
        self.blocks[block.ctypes.data] = block
        self.memory.add(block, name="device memory")
        _put(to, block.ctypes.data)
        return 0

    def _hipFree(self, address: int) -> int:
        if address not in self.blocks:
            return INVALID if address else 0
        self.memory.remove(address)
        del self.blocks[address]
        return 0

    def _hipMemPoolCreate(self, to: int, properties: int) -> None:
        _put(to, POOL)

    def _hipMallocFromPoolAsync(self, to: int, size: int, pool: int, stream: int) -> int:
        assert pool == POOL
        return self._hipMalloc(to, size)

    def _hipFreeAsync(self, address: int, stream: int) -> int:
        return self._hipFree(address)

    def _hipHostMalloc(self, to: int, size: int, flags: int) -> int:
        return self._hipMalloc(to, size)

    def _hipHostFree(self, address: int) -> int:
        return self._hipFree(address)

    def _hipHostGetDevicePointer(self, to: int, address: int, flags: int) -> None:
        _put(to, address)

    def _hipMemcpy(self, to: int, source: int, size: int, kind: int) -> int:
        if not 0 <= kind <= 4:
            return 21
        ctypes.memmove(to, source, size)
        return 0

    def _hipMemcpyAsync(self, to: int, source: int, size: int, kind: int, stream: int) -> int:
        return self._hipMemcpy(to, source, size, kind)

    def _hipMemcpyDtoDAsync(self, to: int, source: int, size: int, stream: int) -> None:
        ctypes.memmove(to, source, size)

    def _hipMemsetAsync(self, to: int, value: int, size: int, stream: int) -> None:
        ctypes.memset(to, value, size)

    def _hipEventCreateWithFlags(self, to: int, flags: int) -> None:
        _put(to, 1)

    # -- code --------------------------------------------------------------------------------------------------------
    def _hipModuleLoadData(self, to: int, image: int) -> int:
        header = ctypes.string_at(image, 64)
        if header[:4] != b"\x7fELF":
            return BAD_IMAGE
        sections = int.from_bytes(header[40:48], "little") + 64 * int.from_bytes(header[60:62], "little")
        emulator = Emulator(ctypes.string_at(image, sections), self.memory)
        if emulator.code.chip.name != self.chip:
            return 209
        emulator.executed = self.executed
        self._modules.append(emulator)
        _put(to, len(self._modules))
        return 0

    def _hipModuleGetFunction(self, to: int, module: int, name: int) -> int:
        emulator, text = self._modules[module - 1], ctypes.string_at(name).decode()
        if text not in emulator.code.kernels:
            return 500
        self._functions.append((emulator, text))
        _put(to, len(self._functions))
        return 0

    def _hipModuleLaunchKernel(self, f: int, gx: int, gy: int, gz: int, bx: int, by: int, bz: int, shared: int, stream: int, parameters: int, extra: int) -> int:  # fmt: skip
        grid, block = (gx, gy, gz), (bx, by, bz)
        if not gx * gy * gz * bx * by * bz:
            return INVALID
        self._run(f, grid, block, shared, stream, self._arguments(f, grid, block, shared, parameters, extra))
        return 0

    def _arguments(self, f: int, grid: Any, block: Any, shared: int, parameters: int, extra: int) -> bytes:
        """The argument buffer: given whole (`extra`), or as an array of pointers to values."""
        emulator, name = self._functions[f - 1]
        kernel = emulator.kernel(name)
        if extra:
            keys = [_word(extra + 8 * i) for i in range(5)]
            assert keys[0::2] == [BUFFER, BUFFER_SIZE, END], "the order that HIP wants"
            return ctypes.string_at(keys[1], _word(keys[3])).ljust(kernel.kernarg, b"\0")
        sizes = [a[".size"] for a in kernel.metadata.get(".args", ()) if not a[".value_kind"].startswith("hidden_")]
        values = [ctypes.string_at(_word(parameters + 8 * i), size) for i, size in enumerate(sizes)]
        return fill_arguments(kernel, values, grid, block, shared)

    def _run(self, f: int, grid: Any, block: Any, shared: int, stream: int, arguments: bytes) -> None:
        emulator, name = self._functions[f - 1]
        self.launches.append((name, grid, stream))
        emulator.launch(name, grid, block, arguments, shared)

    # -- graphs ------------------------------------------------------------------------------------------------------
    def _hipStreamIsCapturing(self, stream: int, to: int) -> None:
        I.from_address(to).value = 0

    def _hipGraphCreate(self, to: int, flags: int) -> None:
        self._graphs.append({})
        _put(to, len(self._graphs))

    def _hipGraphAddKernelNode(self, to: int, graph: int, before: int, count: int, parameters: int) -> None:
        nodes = self._graphs[graph - 1]
        nodes[len(nodes) + 1] = self._node(parameters)
        _put(to, len(nodes))

    def _hipGraphInstantiateWithFlags(self, to: int, graph: int, flags: int) -> None:
        self._graphs.append(dict(self._graphs[graph - 1]))
        _put(to, len(self._graphs))

    def _hipGraphExecKernelNodeSetParams(self, graph: int, node: int, parameters: int) -> None:
        self._graphs[graph - 1][node] = self._node(parameters)

    def _hipGraphLaunch(self, graph: int, stream: int) -> None:
        for f, grid, block, shared, arguments in self._graphs[graph - 1].values():
            self._run(f, grid, block, shared, stream, arguments)

    def _node(self, at: int) -> tuple[Any, ...]:
        """hipKernelNodeParams: block, extra, function, grid, parameters, dynamic LDS."""
        block, grid = (tuple((U * 3).from_address(at + offset)) for offset in (0, 32))
        f, shared = _word(at + 24), U.from_address(at + 56).value
        return f, grid, block, shared, self._arguments(f, grid, block, shared, _word(at + 48), _word(at + 16))


SIGNATURES: dict[str, tuple[Any, ...]] = {
    "hipInit": (U,),
    "hipGetDeviceCount": (P,),
    "hipSetDevice": (I,),
    "hipGetDevice": (P,),
    "hipGetDevicePropertiesR0600": (P, I),
    "hipDeviceGetAttribute": (P, I, I),
    "hipDeviceSynchronize": (),
    "hipStreamCreate": (P,),
    "hipStreamDestroy": (P,),
    "hipStreamSynchronize": (P,),
    "hipStreamIsCapturing": (P, P),
    "hipMalloc": (P, Z),
    "hipFree": (P,),
    "hipMemPoolCreate": (P, P),
    "hipMemPoolSetAttribute": (P, I, P),
    "hipMallocFromPoolAsync": (P, Z, P, P),
    "hipFreeAsync": (P, P),
    "hipHostMalloc": (P, Z, U),
    "hipHostFree": (P,),
    "hipHostGetDevicePointer": (P, P, U),
    "hipMemcpy": (P, P, Z, I),
    "hipMemcpyAsync": (P, P, Z, I, P),
    "hipMemcpyDtoDAsync": (P, P, Z, P),
    "hipMemsetAsync": (P, I, Z, P),
    "hipEventCreateWithFlags": (P, U),
    "hipEventRecord": (P, P),
    "hipEventQuery": (P,),
    "hipEventSynchronize": (P,),
    "hipEventDestroy": (P,),
    "hipModuleLoadData": (P, P),
    "hipModuleGetFunction": (P, P, P),
    "hipModuleLaunchKernel": (P, *[U] * 7, P, P, P),
    "hipGraphCreate": (P, U),
    "hipGraphAddKernelNode": (P, P, P, Z, P),
    "hipGraphInstantiateWithFlags": (P, P, L),
    "hipGraphExecKernelNodeSetParams": (P, P, P),
    "hipGraphLaunch": (P, P),
    "hipGraphExecDestroy": (P,),
    "hipGraphDestroy": (P,),
}


@functools.cache
def _library() -> bytes:
    """The shared library: each function calls its entry of `@table`."""
    names = {P: "ptr", I: "i32", U: "i32", Z: "i64", L: "i64"}
    functions = [("i32", name, [names[t] for t in types]) for name, types in SIGNATURES.items()]
    functions.append(("ptr", "hipGetErrorString", ["i32"]))
    text = f"@table = global [{len(functions)} x ptr] zeroinitializer\n"
    for i, (result, name, types) in enumerate(functions):
        arguments = ", ".join(f"{t} %{n}" for n, t in enumerate(types))
        text += f"""
define {result} @{name}({arguments}) {{
  %at = getelementptr ptr, ptr @table, i64 {i}
  %f = load ptr, ptr %at
  %r = tail call {result} %f({arguments})
  ret {result} %r
}}
"""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(reloc="pic", codemodel="small")
    module = llvm.parse_assembly(text)
    module.triple, module.data_layout = llvm.get_default_triple(), str(machine.target_data)
    return link([machine.emit_object(module)])
