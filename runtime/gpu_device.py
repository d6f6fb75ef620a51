"""What the runtime asks of a GPU's driver, whoever made it: `cuda.Device` and `hip.Device` answer alike."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, Protocol

# (function, grid x y z, block x y z, dynamic shared memory, stream, parameters, None) -> error code
Launch = Callable[..., int]


class Memory(Protocol):
    """A block of device memory that is freed when the object goes."""

    pointer: int


class TensorMap(Protocol):
    """A descriptor that a kernel takes by value, at `address`; `base` is the tensor's."""

    address: int
    base: int

    def point_to(self, base: int) -> None:
        """Let the tensor start at `base`."""


class Module(Protocol):
    """Code on a device."""

    def function(self, name: str, shared: int = 0) -> ctypes.c_void_p:
        """A function of the module, allowed `shared` bytes of dynamic shared memory."""
        ...


class StatusWords:
    """`count` int32 at `address` in host memory, which the device writes through `pointer`; zero at first."""

    def __init__(self, address: int, pointer: int, count: int):
        self.address, self.pointer, self.count = address, pointer, max(count, 1)
        size = 4 * self.count
        self._bytes = (ctypes.c_char * size).from_address(address)
        self._values = (ctypes.c_int32 * self.count).from_address(address)
        self._zero = bytes(size)
        ctypes.memset(address, 0, size)

    def take(self) -> tuple[int, int] | None:
        """The first non-zero value as (position, value), or None; all are zero afterwards."""
        if self._bytes.raw == self._zero:
            return None
        found = next((i, v) for i, v in enumerate(self._values) if v)
        ctypes.memset(self.address, 0, len(self._zero))
        return found


class Device(Protocol):
    """One GPU. `kind` is "cuda" or "hip", `arch` that of targets whose code it may run, `dlpack` its number there."""

    kind: str
    arch: str
    dlpack: int
    index: int
    sms: int  # multiprocessors

    def use(self) -> None:
        """Make the device current in this thread."""

    def synchronize(self, stream: int = 0) -> None:
        """Wait for all work on a stream."""

    def allocate(self, size: int, stream: int = 0) -> Memory:
        """Uninitialised device memory, in the order of `stream`."""
        ...

    def copy(self, to: int, source: int, size: int, stream: int = 0) -> None:
        """Copy between device and host memory, either way, in the order of `stream`."""

    def mapped(self, count: int) -> StatusWords:
        """`count` int32 in host memory that the device can write."""
        ...

    def module(self, code: Sequence[bytes], name: str) -> Module:
        """Load what the container of kernel `name` holds for the device."""
        ...

    def tensor_map(self, base: int, dtype: str, sizes: Sequence[int], strides: Sequence[int], box: Sequence[int], swizzle: int) -> TensorMap:  # fmt: skip
        """A TMA descriptor (docs/contracts.md, section 11), on devices that have them."""
        ...

    def launcher(self) -> Launch:
        """The driver's function that launches a kernel."""
        ...

    def check(self, code: int, what: str) -> None:
        """Raise the error of a failed call."""

    def require(self, target: str) -> None:
        """A LaminaRuntimeError unless code for `target` runs here."""

    def preference(self, target: str) -> Any:
        """How good `target` is for this device, to be compared with others that run here."""
