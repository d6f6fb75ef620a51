"""NVIDIA's driver API through ctypes: devices, code, memory, launches. Only `libcuda.so.1` is needed.

Every call is checked; what fails is a DeviceError (errors.py) that says what to do. Contexts are the devices' primary ones, which
torch and other libraries of the process share, and stay until the process ends.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Mapping, Sequence
from typing import Any

from .. import dlpack
from ..entry import addresses
from ..errors import DeviceError, NoDeviceError, OldDriverError, WrongDeviceError
from . import cubin_cache, drivers

_NO_BINARY, _BAD_IMAGE, _BAD_PTX, _NEW_PTX = 209, 200, 218, 222
_ATTRIBUTE_SMS, _ATTRIBUTE_MAJOR, _ATTRIBUTE_MINOR = 16, 75, 76
_INPUT_PTX = 1  # CU_JIT_INPUT_PTX
_FUNCTION_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_STATIC_SHARED = 48 * 1024  # beyond this a function must ask
# CUtensorMapDataType and CUtensorMapSwizzle
TENSOR_MAP_TYPES = {"u8": 0, "i8": 0, "i32": 3, "f16": 6, "f32": 7, "f64": 8, "bf16": 9, "tf32": 11}
_TENSOR_MAP_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
_Longs, _Ints = ctypes.c_uint64 * 5, ctypes.c_int * 5  # of a tensor's dims, at most; making the types takes 10 µs
_OVERLAP_CAPABILITY, _OVERLAP_DRIVER = (9, 0), (12, 3)  # graphs have programmatic dependences from CUDA 12.3 on
_PROGRAMMATIC_STREAM_SERIALIZATION = 6  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION


@functools.cache
def driver() -> Any:
    """The driver library, initialised; NoDeviceError where there is none or no GPU, OldDriverError if it is too old."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise NoDeviceError(f"there is no NVIDIA driver here: {error}") from None
    code = library.cuInit(0)
    if code:
        raise NoDeviceError(
            f"the NVIDIA driver cannot start (error {code}); is there a GPU, and may this process use it?", code
        )
    for name in ("cuMemAllocFromPoolAsync", "cuMemFreeAsync"):
        if not hasattr(library, name):
            raise OldDriverError("the NVIDIA driver is too old; version 11.2 of CUDA or newer is needed")
    pointer, number = ctypes.c_void_p, ctypes.c_uint
    library.cuLaunchKernel.argtypes = [pointer, *[number] * 7, pointer, pointer, pointer]  # converts faster
    if hasattr(library, "cuLaunchKernelEx"):
        library.cuLaunchKernelEx.argtypes = [pointer] * 4
    return library


def check(code: int, what: str) -> None:
    """Raise the DeviceError of a failed call."""
    if code:
        text = ctypes.c_char_p()
        driver().cuGetErrorString(code, ctypes.byref(text))
        raise drivers.failure(code, text.value, what, "CUDA")


class Device(drivers.Device):
    """One GPU and its primary context."""

    kind, arch, dlpack, prefix = "cuda", "nvptx64", dlpack.CUDA, "cu"
    check = staticmethod(check)

    def __init__(self, index: int):
        cu = self.library = driver()
        super().__init__(index, cu.cuDeviceGetCount, "NVIDIA")
        handle = ctypes.c_int()
        check(cu.cuDeviceGet(ctypes.byref(handle), index), f"opening cuda:{index}")
        name = ctypes.create_string_buffer(128)
        check(cu.cuDeviceGetName(name, 128, handle), f"naming cuda:{index}")
        self.name = name.value.decode()
        self.capability = self.attribute(_ATTRIBUTE_MAJOR, handle), self.attribute(_ATTRIBUTE_MINOR, handle)
        self.sms = self.attribute(_ATTRIBUTE_SMS, handle)
        version = ctypes.c_int()
        check(cu.cuDriverGetVersion(ctypes.byref(version)), "asking for the driver's version")
        self.driver_version = version.value // 1000, version.value % 1000 // 10
        self.overlaps = self.capability >= _OVERLAP_CAPABILITY and self.driver_version >= _OVERLAP_DRIVER
        context = ctypes.c_void_p()
        check(cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), handle), f"starting cuda:{index}")
        self.context = context.value or 0
        self.pool = drivers.memory_pool(self)

    def __str__(self) -> str:
        (major, minor), (cuda, point) = self.capability, self.driver_version
        return f"cuda:{self.index} ({self.name}, compute capability {major}.{minor}, driver for CUDA {cuda}.{point})"

    # -- code --------
    def module(self, code: Sequence[bytes], name: str) -> Module:
        """Load PTX or a cubin; see Module."""
        ptx, cubin = code
        return Module(self, ptx, cubin, name)

    def tensor_map(
        self, base: int, entry: Mapping[str, Any], sizes: Sequence[int], strides: Sequence[int]
    ) -> TensorMap:
        """A TMA descriptor."""
        return TensorMap(base, entry, sizes, strides)

    def overlapping(self, shape: Sequence[Any]) -> LaunchConfig | None:
        return LaunchConfig(shape[1:]) if self.overlaps else None

    def functions(self) -> dict[str, int]:
        """Those of all devices, and two of ours."""
        more = {"launch_overlapping": "cuLaunchKernelEx"} if self.overlaps else {}
        return super().functions() | addresses(driver(), {"move_map": "cuTensorMapReplaceAddress", **more})

    def node(self, shape: Sequence[Any], parameters: int) -> KernelNode:
        """`CUDA_KERNEL_NODE_PARAMS`."""
        function, *rest = shape
        return KernelNode(function, (ctypes.c_uint * 7)(*rest), parameters, None)

    def require(self, target: str) -> None:
        number = target.removeprefix("sm_").rstrip("a")
        wanted = int(number[:-1]), int(number[-1])
        if not (self.capability == wanted if target.endswith("a") else self.capability >= wanted):
            raise WrongDeviceError(f"the code is for {target}, and {self} cannot run it; compile for {target_of(self)}")

    def preference(self, target: str) -> Any:
        """The newest architecture, and of that the one with all features."""
        return int(target.removeprefix("sm_").rstrip("a")), target.endswith("a")


class KernelNode(ctypes.Structure):
    """`CUDA_KERNEL_NODE_PARAMS` of a launch."""

    _fields_ = [
        ("function", ctypes.c_void_p),
        ("shape", ctypes.c_uint * 7),  # grid, block, dynamic shared memory
        ("parameters", ctypes.c_void_p),
        ("extra", ctypes.c_void_p),
    ]


class LaunchConfig(ctypes.Structure):
    """`CUlaunchConfig` with one attribute: the kernel may begin while the one before it in the stream ends."""

    _fields_ = [
        ("shape", ctypes.c_uint * 7),  # grid, block, dynamic shared memory
        ("stream", ctypes.c_void_p),  # at table.CONFIG_STREAM
        ("attributes", ctypes.c_void_p),
        ("count", ctypes.c_uint),
        # CUlaunchAttribute: which, and a union of 64 bytes
        ("attribute", ctypes.c_uint64),
        ("allowed", ctypes.c_int),
        ("rest", ctypes.c_byte * 60),
    ]

    def __init__(self, shape: Sequence[int]):
        super().__init__((ctypes.c_uint * 7)(*shape), count=1, attribute=_PROGRAMMATIC_STREAM_SERIALIZATION, allowed=1)
        self.attributes = ctypes.addressof(self) + LaunchConfig.attribute.offset


class Module(drivers.Module):
    """Code, from a cubin or, where that is missing or for another GPU, from PTX."""

    device: Device

    def __init__(self, device: Device, ptx: bytes, cubin: bytes, name: str):
        super().__init__(device, name)
        code = driver().cuModuleLoadData(ctypes.byref(self.handle), cubin) if cubin else _NO_BINARY
        if code in (_NO_BINARY, _BAD_IMAGE):
            self._compile(ptx)
        else:
            check(code, f"loading kernel '{name}'")

    def _compile(self, ptx: bytes) -> None:
        """Let the driver compile PTX, or take what it made of the same PTX before (cubin_cache.py)."""
        made = cubin_cache.get(ptx, self.device)
        if made and driver().cuModuleLoadData(ctypes.byref(self.handle), made) == 0:
            return
        made = self._link(ptx)
        check(driver().cuModuleLoadData(ctypes.byref(self.handle), made), f"loading kernel '{self.name}'")
        cubin_cache.put(ptx, self.device, made)

    def _link(self, ptx: bytes) -> bytes:
        """The cubin of PTX, by the driver's linker, which takes one input too."""
        cu, log, state = driver(), ctypes.create_string_buffer(8192), ctypes.c_void_p()
        options = (ctypes.c_int * 2)(5, 6)  # CU_JIT_ERROR_LOG_BUFFER and its size
        values = (ctypes.c_void_p * 2)(ctypes.cast(log, ctypes.c_void_p), ctypes.c_void_p(8192))
        check(cu.cuLinkCreate_v2(2, options, values, ctypes.byref(state)), "starting the driver's linker")
        try:
            text = ptx + b"\0"
            code = cu.cuLinkAddData_v2(
                state, _INPUT_PTX, text, ctypes.c_size_t(len(text)), self.name.encode(), 0, None, None
            )
            cubin, size = ctypes.c_void_p(), ctypes.c_size_t()
            code = code or cu.cuLinkComplete(state, ctypes.byref(cubin), ctypes.byref(size))
            if code == _NEW_PTX:
                raise OldDriverError(
                    f"the NVIDIA driver is too old for the PTX of kernel '{self.name}'; update it", code
                )
            if code in (_NO_BINARY, _BAD_PTX) and log.value:
                raise DeviceError(f"the driver cannot compile kernel '{self.name}': {log.value.decode()[:500]}", code)
            check(code, f"compiling kernel '{self.name}'")
            return ctypes.string_at(cubin, size.value)
        finally:
            cu.cuLinkDestroy(state)

    def function(self, name: str, shared: int = 0) -> ctypes.c_void_p:
        found = super().function(name, shared)
        if shared > _STATIC_SHARED:
            check(driver().cuFuncSetAttribute(found, _FUNCTION_SHARED, shared), f"giving '{name}' {shared} bytes")
        return found


def tensor_map_memory(entry: Mapping[str, Any]) -> tuple[int, int, int, int]:
    """How a descriptor's tensor lies: not interleaved, its swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_128B, zeros outside."""
    return 0, _TENSOR_MAP_SWIZZLES[entry.get("swizzle", 0)], 2, 0


class TensorMap:
    """A TMA descriptor in host memory: 128 bytes at `address`, passed to a kernel by value (docs/contracts.md, §11).

    Its base address changes from call to call, and the driver can exchange that without encoding the rest again.
    """

    def __init__(self, base: int, entry: Mapping[str, Any], sizes: Sequence[int], strides: Sequence[int]):
        self._memory = (ctypes.c_char * 192)()
        self.address = -(-ctypes.addressof(self._memory) // 64) * 64
        self.base, rank, box = base, len(sizes), entry["box"]
        tensor = (
            ctypes.c_void_p(self.address),
            TENSOR_MAP_TYPES[entry["type"]],
            rank,
            ctypes.c_void_p(base),
            _Longs(*sizes),
            _Longs(*strides),
        )
        memory = tensor_map_memory(entry)
        if "steps" in entry:
            corners = (_Ints(*entry[k]) for k in ("lower", "upper"))
            steps = _Ints(1, *entry["steps"], 1)
            code = driver().cuTensorMapEncodeIm2col(*tensor, *corners, *box, steps, *memory)
        else:
            code = driver().cuTensorMapEncodeTiled(*tensor, _Ints(*box), _Ints(*[1] * rank), *memory)
        check(code, f"describing a tensor of sizes {list(sizes)}")

    def point_to(self, base: int) -> None:
        """Let the tensor start at `base`, which is aligned to 16."""
        if base != self.base:
            code = driver().cuTensorMapReplaceAddress(ctypes.c_void_p(self.address), ctypes.c_void_p(base))
            check(code, "moving a tensor's description")
            self.base = base


_devices: dict[int, Device] = {}


def device(index: int = 0) -> Device:
    """The device number `index`."""
    return drivers.opened(_devices, index, Device)


def target_of(device: Device) -> str:
    """The best target for a device."""
    if device.capability == (9, 0):
        return "sm_90a"
    if device.capability >= (8, 0):
        return "sm_80"
    raise WrongDeviceError(f"{device} is too old; compute capability 8.0 or newer is needed")
