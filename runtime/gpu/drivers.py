"""What the runtime asks of a GPU's driver, whoever made it, and what NVIDIA's and AMD's share (`cuda.py`, `hip.py`)."""

from __future__ import annotations

import contextlib
import ctypes
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ..entry import addresses
from ..errors import DeviceError, DeviceMemoryError, NoDeviceError, WrongDeviceError

if TYPE_CHECKING:
    from .cuda import TensorMap

D = TypeVar("D")
_opening = threading.RLock()
_HOST_PORTABLE_MAPPED = 3  # flags of host memory, the same in CUDA and HIP
_NO_DEVICE = 100  # an error's number
_GRANULE = 16  # bytes: what buffers are aligned to, and scalar loads may be widened to
# what native entries call (table.DRIVER_SLOTS), by CUDA's names
FUNCTIONS = {
    "current_context": "CtxGetCurrent",
    "set_context": "CtxSetCurrent",
    "launch_kernel": "LaunchKernel",
    "copy_async": "MemcpyAsync",
    "graph_launch": "GraphLaunch",
    "set_node": "GraphExecKernelNodeSetParams",
    "is_capturing": "StreamIsCapturing",
    "take_memory": "MemAllocFromPoolAsync",
    "give_memory": "MemFreeAsync",
}


def opened(devices: dict[int, D], index: int, make: Callable[[int], D]) -> D:
    """Device number `index` of `devices`, made when it is first asked for: one object in all threads."""
    with _opening:
        return devices[index] if index in devices else devices.setdefault(index, make(index))


_OUT_OF_MEMORY = 2  # errors' numbers are the same in CUDA and HIP
_ADVICE = {
    _OUT_OF_MEMORY: "free device memory or make the problem smaller",
    3: "a forked process cannot use its parent's GPU; start processes with multiprocessing's 'spawn'",
    4: "the driver has shut down, for the process is ending",
    **dict.fromkeys(
        (201, 709), "the device's context is gone: something in this process has reset the device; start a new process"
    ),
    **dict.fromkeys(
        (700, 710, 714, 715, 716, 717, 718, 719),
        "a kernel of this process has failed, and the device takes no more work from it; start a new process",
    ),
}


def failure(code: int, text: bytes | None, what: str, maker: str) -> DeviceError:
    """The error of a failed call: what it was for, the driver's text, and what to do about it where we know."""
    said = (text or b"unknown error").decode() + (f"; {_ADVICE[code]}" if code in _ADVICE else "")
    return (DeviceMemoryError if code == _OUT_OF_MEMORY else DeviceError)(
        f"{what}: {said} ({maker} error {code})", code
    )


class _PoolProperties(ctypes.Structure):
    """`CUmemPoolProps` and `hipMemPoolProps`, which agree."""

    _fields_ = [
        ("kind", ctypes.c_int),  # 1: pinned, the only one
        ("handles", ctypes.c_int),
        ("place", ctypes.c_int),  # 1: a device
        ("device", ctypes.c_int),
        ("reserved", ctypes.c_byte * 72),
    ]


_RELEASE_THRESHOLD = 4  # CU_MEMPOOL_ATTR_RELEASE_THRESHOLD and hipMemPoolAttrReleaseThreshold


def memory_pool(device: Device) -> int:
    """A new pool of a device's memory that keeps what was freed.

    The driver's default pool gives all that is free back to the system at each synchronisation, and mapping it again
    costs more than many kernels. It is everybody's in the process, so its settings are not ours to change.
    """
    made, keep = ctypes.c_void_p(), ctypes.c_uint64(2**64 - 1)
    properties = _PoolProperties(kind=1, place=1, device=device.index)
    what = f"making a memory pool of {device}"
    device.call(what, "MemPoolCreate", ctypes.byref(made), ctypes.byref(properties))
    device.call(what, "MemPoolSetAttribute", made, _RELEASE_THRESHOLD, ctypes.byref(keep))
    return made.value or 0


class Module:
    """Code on a device."""

    def __init__(self, device: Device, name: str):
        self.device, self.name, self.handle = device, name, ctypes.c_void_p()

    def function(self, name: str, shared: int = 0) -> ctypes.c_void_p:
        """A function of the module, allowed `shared` bytes of dynamic shared memory."""
        found = ctypes.c_void_p()
        self.device.call(
            f"finding function '{name}'", "ModuleGetFunction", ctypes.byref(found), self.handle, name.encode()
        )
        return found


class Device(ABC):
    """One GPU. `kind` is "cuda" or "hip", `arch` that of targets whose code it may run, `dlpack` its number there."""

    kind: str
    arch: str
    dlpack: int
    prefix: str  # of the driver's functions
    names: Mapping[str, str] = {}  # CUDA's name of a function → the driver's, where it is another
    copy_kind: tuple[int, ...] = ()  # what its MemcpyAsync takes besides
    library: Any  # the driver's
    index: int
    sms: int  # multiprocessors
    context: int  # what CtxGetCurrent finds when the device is current
    pool: int  # the memory pool that `take` takes from

    def __init__(self, index: int, count_devices: Callable[[Any], int], maker: str):
        count = ctypes.c_int()
        code = count_devices(ctypes.byref(count))
        if code != _NO_DEVICE:
            self.check(code, "counting devices")
        if not 0 <= index < count.value:
            raise NoDeviceError(
                f"there is no device {self.kind}:{index}; this machine has {count.value} {maker} GPU(s)"
            )
        self.index = index

    @contextlib.contextmanager
    def use(self) -> Iterator[None]:
        """Have the device current in this thread, and then again what was: torch's current device is the same thing."""
        found = ctypes.c_void_p()
        self.driver_function("CtxGetCurrent")(ctypes.byref(found))
        other = (found.value or 0) != self.context
        if other:
            self.call(f"using {self}", "CtxSetCurrent", ctypes.c_void_p(self.context))
        try:
            yield
        finally:
            if other:
                self.driver_function("CtxSetCurrent")(found)

    def attribute(self, number: int, device: Any) -> int:
        """A fact of the driver's `device`."""
        value = ctypes.c_int()
        self.call("reading a device attribute", "DeviceGetAttribute", ctypes.byref(value), number, device)
        return value.value

    def synchronize(self, stream: int = 0) -> None:
        """Wait for all work on a stream."""
        with self.use():
            self.call("running on the device", "StreamSynchronize", ctypes.c_void_p(stream))

    @staticmethod
    @abstractmethod
    def check(code: int, what: str) -> None:
        """Raise the DeviceError of a failed call."""

    # -- code --------
    @abstractmethod
    def module(self, code: Sequence[bytes], name: str) -> Module:
        """Load what the container of kernel `name` holds for the device."""

    def tensor_map(
        self, base: int, entry: Mapping[str, Any], sizes: Sequence[int], strides: Sequence[int]
    ) -> TensorMap:
        """The TMA descriptor of `entry` (docs/contracts.md, section 11), on devices that have them."""
        raise WrongDeviceError(f"{self} has no tensor descriptors; the code is for another GPU")

    def overlapping(self, shape: Sequence[Any]) -> ctypes.Structure | None:
        """Describe a launch of `shape` (see `node`) that may begin while the one before ends; None: none may."""
        return None

    def launch_overlapping(self, config: Any, function: Any, stream: int, parameters: int) -> int:
        """Launch what `overlapping` described; the driver's code."""
        config.stream = stream
        return self.driver_function("LaunchKernelEx")(ctypes.addressof(config), function, parameters, None)

    def driver_function(self, name: str) -> Any:
        """The driver's function that CUDA calls `cu` and this name."""
        return getattr(self.library, self._full_name(name))

    def call(self, what: str, name: str, *given: Any) -> None:
        """Call such a function; a DeviceError says that `what` has failed."""
        self.check(self.driver_function(name)(*given), what)

    def functions(self) -> dict[str, int]:
        """Addresses of what native code calls, by the names in `table.DRIVER_SLOTS`; AttributeError if one lacks."""
        return addresses(self.library, {word: self._full_name(name) for word, name in FUNCTIONS.items()})

    def _full_name(self, name: str) -> str:
        return self.prefix + self.names.get(name, name)

    @abstractmethod
    def node(self, shape: Sequence[Any], parameters: int) -> ctypes.Structure:
        """The driver's parameters of a graph's kernel: (function, grid, block, dynamic shared memory), arguments at an address."""

    @abstractmethod
    def require(self, target: str) -> None:
        """A WrongDeviceError unless code for `target` runs here."""

    def preference(self, target: str) -> Any:
        """How good `target` is for this device, to be compared with others that run here."""
        return target

    # -- memory --------
    def copy(self, to: int, source: int, size: int, stream: int = 0) -> None:
        """Copy between device and host memory, either way, in the order of `stream`."""
        if size:
            function, where = getattr(self.library, self.prefix + "MemcpyAsync"), map(ctypes.c_void_p, (to, source))
            with self.use():
                code = function(*where, ctypes.c_size_t(size), *self.copy_kind, ctypes.c_void_p(stream))
            self.check(code, f"copying {size} bytes")

    def take(self, size: int, stream: int) -> int:
        """The pointer of new device memory, in whole granules: kernels may read the last one of a buffer to its end."""
        pointer, whole = ctypes.c_uint64(), ctypes.c_size_t(max(-(-size // _GRANULE) * _GRANULE, _GRANULE))
        place = ctypes.c_void_p(self.pool), ctypes.c_void_p(stream)
        self.call(f"allocating {size} bytes on {self}", "MemAllocFromPoolAsync", ctypes.byref(pointer), whole, *place)
        return pointer.value

    def give_back(self, pointer: int, stream: int) -> None:
        """Free what `take` gave, in the order of `stream`."""
        self.driver_function("MemFreeAsync")(ctypes.c_void_p(pointer), ctypes.c_void_p(stream))

    def take_host(self, size: int) -> tuple[int, int]:
        """Addresses, on the host and on the device, of new host memory that the device can write."""
        address, pointer = ctypes.c_void_p(), ctypes.c_uint64()
        what = "allocating mapped memory"
        self.call(what, "MemHostAlloc", ctypes.byref(address), ctypes.c_size_t(size), _HOST_PORTABLE_MAPPED)
        self.call(what, "MemHostGetDevicePointer_v2", ctypes.byref(pointer), address, 0)
        return address.value or 0, pointer.value

    def give_back_host(self, address: int) -> None:
        """Free what `take_host` gave."""
        self.driver_function("MemFreeHost")(ctypes.c_void_p(address))


class Memory:
    """Uninitialised device memory, taken and, when the object goes, freed in the order of `stream`.

    `pointer` is a block that native code has taken already.
    """

    __slots__ = ("device", "pointer", "size", "stream")

    def __init__(self, device: Device, size: int, stream: int = 0, pointer: int = 0):
        self.device, self.size, self.stream = device, size, stream
        if not pointer:
            with device.use():
                pointer = device.take(size, stream)
        self.pointer = pointer

    def __del__(self) -> None:
        pointer, self.pointer = getattr(self, "pointer", 0), 0
        if pointer:
            try:
                with self.device.use():
                    self.device.give_back(pointer, self.stream)
            except Exception:  # the process is ending
                pass


class StatusWords:
    """`count` int32 at `address` in host memory, which the device writes through `pointer`; zero at first."""

    def __init__(self, device: Device, count: int):
        self.device, self.count = device, max(count, 1)
        size = 4 * self.count
        with device.use():
            self.address, self.pointer = device.take_host(size)
        self._bytes = (ctypes.c_char * size).from_address(self.address)
        self._values = (ctypes.c_int32 * self.count).from_address(self.address)
        self._zero = bytes(size)
        ctypes.memset(self.address, 0, size)

    def __del__(self) -> None:
        try:
            with self.device.use():
                self.device.give_back_host(self.address)
        except Exception:  # the process is ending, or there is no memory
            pass

    def take(self) -> tuple[int, int] | None:
        """The first non-zero value as (position, value), or None; all are zero afterwards."""
        if self._bytes.raw == self._zero:
            return None
        found = next((i, v) for i, v in enumerate(self._values) if v)
        ctypes.memset(self.address, 0, len(self._zero))
        return found
