"""AMD's HIP runtime through ctypes: devices, code, memory, launches. Only `libamdhip64` is needed.

The interface is that of `cuda.py` (`drivers.Device`). HIP has no contexts to keep: a thread chooses its device.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
from collections.abc import Sequence
from typing import Any

from .. import dlpack
from ..errors import NoDeviceError, OldDriverError, WrongDeviceError
from . import drivers

_LIBRARIES = ("libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6", "/opt/rocm/lib/libamdhip64.so")
_BAD_IMAGE, _NO_BINARY = 200, 209
# a device stands for the context that HIP does not have
_NAMES = {
    "CtxGetCurrent": "GetDevice",
    "CtxSetCurrent": "SetDevice",
    "LaunchKernel": "ModuleLaunchKernel",
    "MemcpyAsync": "MemcpyDtoDAsync",
    "EventCreate": "EventCreateWithFlags",
    "EventDestroy_v2": "EventDestroy",
    "MemAllocFromPoolAsync": "MallocFromPoolAsync",
    "MemFreeAsync": "FreeAsync",
    "MemHostAlloc": "HostMalloc",
    "MemHostGetDevicePointer_v2": "HostGetDevicePointer",
    "MemFreeHost": "HostFree",
}
_COPY_DEFAULT = 4  # hipMemcpyDefault: the pointers tell the direction
_ATTRIBUTE_MULTIPROCESSORS = 63
# hipDeviceProp_t as `hipGetDevicePropertiesR0600` writes it, from ROCm 6.0 on
_PROPERTIES_BYTES, _NAME_AT, _ARCH_AT, _TEXT = 4096, 0, 1160, 256


@functools.cache
def driver() -> Any:
    """HIP's library, initialised; NoDeviceError where there is none or no GPU, OldDriverError if it is too old."""
    library = _library()
    code = library.hipInit(0)
    if code:
        raise NoDeviceError(
            f"HIP cannot start (error {code}); is there an AMD GPU, and may this process use /dev/kfd?", code
        )
    for name in ("hipMallocFromPoolAsync", "hipFreeAsync", "hipGetDevicePropertiesR0600"):
        if not hasattr(library, name):
            raise OldDriverError(f"the HIP library is too old (it has no {name}); ROCm 6.0 or newer is needed")
    library.hipGetErrorString.restype = ctypes.c_char_p
    pointer, number = ctypes.c_void_p, ctypes.c_uint
    library.hipModuleLaunchKernel.argtypes = [pointer, *[number] * 7, pointer, pointer, pointer]  # converts faster
    return library


def _library() -> Any:
    """The library that this process has loaded already, else any: torch brings its own, and two would share no memory."""
    for name in _LIBRARIES:
        with contextlib.suppress(OSError):
            return ctypes.CDLL(name, mode=ctypes.DEFAULT_MODE | os.RTLD_NOLOAD)
    error: OSError | None = None
    for name in _LIBRARIES:
        try:
            return ctypes.CDLL(name)
        except OSError as failed:
            error = error or failed
    raise NoDeviceError(f"there is no HIP library here: {error}; install ROCm's libamdhip64")


def check(code: int, what: str) -> None:
    """Raise the DeviceError of a failed call."""
    if code:
        raise drivers.failure(code, driver().hipGetErrorString(code), what, "HIP")


def architecture(full: str) -> str:
    """`gfx90a` of `gfx90a:sramecc+:xnack-`, as HIP and torch spell it."""
    return full.partition(":")[0]


class Device(drivers.Device):
    """One GPU."""

    kind, arch, dlpack, prefix, names, copy_kind = "hip", "amdgcn", dlpack.ROCM, "hip", _NAMES, (_COPY_DEFAULT,)
    check = staticmethod(check)

    def __init__(self, index: int):
        hip = self.library = driver()
        super().__init__(index, hip.hipGetDeviceCount, "AMD")
        properties = ctypes.create_string_buffer(_PROPERTIES_BYTES)
        check(hip.hipGetDevicePropertiesR0600(properties, index), f"opening hip:{index}")
        self.name, full = (
            properties.raw[at : at + _TEXT].split(b"\0")[0].decode(errors="replace") for at in (_NAME_AT, _ARCH_AT)
        )
        self.chip = architecture(full)
        self.sms, self.context = self.attribute(_ATTRIBUTE_MULTIPROCESSORS, index), index
        self.pool = drivers.memory_pool(self)

    def __str__(self) -> str:
        return f"hip:{self.index} ({self.name}, {self.chip})"

    # -- code --------
    def module(self, code: Sequence[bytes], name: str) -> Module:
        """Load a code object."""
        (image,) = code
        return Module(self, image, name)

    def node(self, shape: Sequence[Any], parameters: int) -> KernelNode:
        """`hipKernelNodeParams`."""
        function, *rest = shape
        grid, block, (shared,) = rest[:3], rest[3:6], rest[6:]
        of = ctypes.c_uint * 3
        return KernelNode(of(*block), None, function, of(*grid), parameters, shared)

    def require(self, target: str) -> None:
        """Code objects run on one kind of chip only."""
        if target != self.chip:
            raise WrongDeviceError(f"the code is for {target}, and {self} cannot run it; compile for {self.chip}")


class KernelNode(ctypes.Structure):
    """`hipKernelNodeParams` of a launch."""

    _fields_ = [
        ("block", ctypes.c_uint * 3),
        ("extra", ctypes.c_void_p),
        ("function", ctypes.c_void_p),
        ("grid", ctypes.c_uint * 3),
        ("parameters", ctypes.c_void_p),
        ("shared", ctypes.c_uint),
    ]


class Module(drivers.Module):
    """Code on a device."""

    def __init__(self, device: Device, image: bytes, name: str):
        super().__init__(device, name)
        self._image = image  # HIP may read it later
        code = driver().hipModuleLoadData(ctypes.byref(self.handle), image)
        if code in (_BAD_IMAGE, _NO_BINARY):
            raise WrongDeviceError(f"HIP cannot load kernel '{name}' on {device}; compile for {device.chip}", code)
        check(code, f"loading kernel '{name}'")


_devices: dict[int, Device] = {}


def device(index: int = 0) -> Device:
    """The device number `index`."""
    return drivers.opened(_devices, index, Device)
