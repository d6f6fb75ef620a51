"""AMD's HIP runtime through ctypes: devices, code, memory, launches. Only `libamdhip64` is needed.

The same interface as `cuda.py` (`gpu_device.Device`). HIP has no contexts to keep: a thread chooses its device. Every
call is checked; what fails is a HipError that says what to do.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Sequence
from typing import Any

from . import dlpack
from .errors import LaminaRuntimeError
from .gpu_device import StatusWords

_LIBRARIES = ("libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6", "/opt/rocm/lib/libamdhip64.so")
_OUT_OF_MEMORY, _BAD_IMAGE, _NO_DEVICE, _NO_BINARY = 2, 200, 100, 209
_HOST_PORTABLE_MAPPED = 3
_GRANULE = 16  # bytes: what buffers are aligned to, and scalar loads may be widened to
_COPY_DEFAULT = 4  # hipMemcpyDefault: the pointers tell the direction
_ATTRIBUTE_MULTIPROCESSORS = 63
# hipDeviceProp_t as `hipGetDevicePropertiesR0600` writes it, from ROCm 6.0 on
_PROPERTIES_BYTES, _NAME_AT, _ARCH_AT, _TEXT = 4096, 0, 1160, 256


class HipError(LaminaRuntimeError):
    """HIP refused something; `code` is its number."""

    def __init__(self, message: str, code: int = 0):
        super().__init__(message)
        self.code = code


@functools.cache
def driver() -> Any:
    """HIP's library, initialised; HipError where there is none or no device."""
    library = _library()
    code = library.hipInit(0)
    if code:
        raise HipError(
            f"HIP cannot start (error {code}); is there an AMD GPU, and may this process use /dev/kfd?", code
        )
    for name in ("hipMallocAsync", "hipFreeAsync", "hipGetDevicePropertiesR0600"):
        if not hasattr(library, name):
            raise HipError(f"the HIP library is too old (it has no {name}); ROCm 6.0 or newer is needed")
    library.hipGetErrorString.restype = ctypes.c_char_p
    pointer, number = ctypes.c_void_p, ctypes.c_uint
    library.hipModuleLaunchKernel.argtypes = [pointer, *[number] * 7, pointer, pointer, pointer]  # converts faster
    return library


def _library() -> Any:
    error: OSError | None = None
    for name in _LIBRARIES:
        try:
            return ctypes.CDLL(name)
        except OSError as failed:
            error = error or failed
    raise HipError(f"there is no HIP library here: {error}; install ROCm's libamdhip64")


def check(code: int, what: str) -> None:
    """Raise the HipError of a failed call."""
    if not code:
        return
    message = (driver().hipGetErrorString(code) or b"unknown error").decode()
    if code == _OUT_OF_MEMORY:
        message += "; free device memory or make the problem smaller"
    raise HipError(f"{what}: {message} (HIP error {code})", code)


def architecture(full: str) -> str:
    """`gfx90a` of `gfx90a:sramecc+:xnack-`, as HIP and torch spell it."""
    return full.partition(":")[0]


def check_architecture(target: str, device: Device) -> None:
    """A LaminaRuntimeError unless code for `target` is for the chip of `device`: code objects run on one kind only."""
    if target != device.chip:
        raise LaminaRuntimeError(f"the code is for {target}, and {device} cannot run it; compile for {device.chip}")


class Device:
    """One GPU."""

    kind, arch, dlpack = "hip", "amdgcn", dlpack.ROCM

    def __init__(self, index: int):
        hip = driver()
        count = ctypes.c_int()
        code = hip.hipGetDeviceCount(ctypes.byref(count))
        if code != _NO_DEVICE:
            check(code, "counting devices")
        if not 0 <= index < count.value:
            raise HipError(f"there is no device hip:{index}; this machine has {count.value} AMD GPU(s)")
        self.index = index
        properties = ctypes.create_string_buffer(_PROPERTIES_BYTES)
        check(hip.hipGetDevicePropertiesR0600(properties, index), f"opening hip:{index}")
        self.name, full = (
            properties.raw[at : at + _TEXT].split(b"\0")[0].decode(errors="replace") for at in (_NAME_AT, _ARCH_AT)
        )
        self.chip = architecture(full)
        units = ctypes.c_int()
        check(
            hip.hipDeviceGetAttribute(ctypes.byref(units), _ATTRIBUTE_MULTIPROCESSORS, index),
            "reading a device attribute",
        )
        self.sms = units.value

    def __str__(self) -> str:
        return f"hip:{self.index} ({self.name}, {self.chip})"

    def use(self) -> None:
        """Make the device current in this thread."""
        check(driver().hipSetDevice(self.index), f"using {self}")

    def synchronize(self, stream: int = 0) -> None:
        """Wait for all work on a stream."""
        self.use()
        check(driver().hipStreamSynchronize(ctypes.c_void_p(stream)), "running on the device")

    # -- code ------------------------------------------------------------------------------------------------------
    def module(self, code: Sequence[bytes], name: str) -> Module:
        """Load a code object."""
        (image,) = code
        return Module(self, image, name)

    def tensor_map(self, base: int, dtype: str, sizes: Sequence[int], strides: Sequence[int], box: Sequence[int], swizzle: int) -> Any:  # fmt: skip
        """AMD GPUs have no TMA, and no kernel for them asks for a descriptor."""
        raise HipError(f"{self} has no tensor descriptors; the code is for another GPU")

    def launcher(self) -> Any:
        """`hipModuleLaunchKernel`."""
        return driver().hipModuleLaunchKernel

    def check(self, code: int, what: str) -> None:
        """Raise the HipError of a failed call."""
        check(code, what)

    def require(self, target: str) -> None:
        """A LaminaRuntimeError unless code for `target` runs here."""
        check_architecture(target, self)

    def preference(self, target: str) -> Any:
        """Code runs on one kind of chip: there is nothing to prefer."""
        return target

    # -- memory ----------------------------------------------------------------------------------------------------
    def allocate(self, size: int, stream: int = 0) -> Memory:
        """Uninitialised device memory, in the order of `stream`; freed in that order when the object goes."""
        return Memory(self, size, stream)

    def mapped(self, count: int) -> Mapped:
        """`count` int32 in host memory that the device can write."""
        return Mapped(self, count)

    def copy(self, to: int, source: int, size: int, stream: int = 0) -> None:
        """Copy between device and host memory, either way, in the order of `stream`."""
        if size:
            code = driver().hipMemcpyAsync(
                ctypes.c_void_p(to),
                ctypes.c_void_p(source),
                ctypes.c_size_t(size),
                _COPY_DEFAULT,
                ctypes.c_void_p(stream),
            )
            check(code, f"copying {size} bytes")


class Memory:
    """A block of device memory, in whole granules: kernels may read the last one of a buffer to its end."""

    def __init__(self, device: Device, size: int, stream: int):
        device.use()
        self.device, self.size, self.stream = device, size, stream
        pointer = ctypes.c_void_p()
        whole = ctypes.c_size_t(max(-(-size // _GRANULE) * _GRANULE, _GRANULE))
        code = driver().hipMallocAsync(ctypes.byref(pointer), whole, ctypes.c_void_p(stream))
        check(code, f"allocating {size} bytes on {device}")
        self.pointer = pointer.value or 0

    def __del__(self) -> None:
        pointer, self.pointer = getattr(self, "pointer", 0), 0
        if pointer:
            try:
                self.device.use()
                driver().hipFreeAsync(ctypes.c_void_p(pointer), ctypes.c_void_p(self.stream))
            except Exception:  # the process is ending
                pass


class Mapped(StatusWords):
    """`count` int32 in host memory that the device can write."""

    def __init__(self, device: Device, count: int):
        device.use()
        address, pointer = ctypes.c_void_p(), ctypes.c_void_p()
        size = max(4 * count, 4)
        check(
            driver().hipHostMalloc(ctypes.byref(address), ctypes.c_size_t(size), _HOST_PORTABLE_MAPPED),
            "allocating mapped memory",
        )
        check(driver().hipHostGetDevicePointer(ctypes.byref(pointer), address, 0), "mapping memory")
        super().__init__(address.value or 0, pointer.value or 0, count)

    def __del__(self) -> None:
        try:
            driver().hipHostFree(ctypes.c_void_p(self.address))
        except Exception:  # the process is ending
            pass


class Module:
    """Code on a device."""

    def __init__(self, device: Device, image: bytes, name: str):
        device.use()
        self._image = image  # HIP may read it later
        self._handle = ctypes.c_void_p()
        code = driver().hipModuleLoadData(ctypes.byref(self._handle), image)
        if code in (_BAD_IMAGE, _NO_BINARY):
            raise HipError(f"HIP cannot load kernel '{name}' on {device}; compile for {device.chip}", code)
        check(code, f"loading kernel '{name}'")

    def function(self, name: str, shared: int = 0) -> ctypes.c_void_p:
        """A function of the module; its dynamic shared memory needs no permission."""
        found = ctypes.c_void_p()
        code = driver().hipModuleGetFunction(ctypes.byref(found), self._handle, name.encode())
        check(code, f"finding function '{name}'")
        return found


_devices: dict[int, Device] = {}
_lock = threading.Lock()


def device(index: int = 0) -> Device:
    """The device number `index`."""
    with _lock:
        if index not in _devices:
            _devices[index] = Device(index)
        return _devices[index]
