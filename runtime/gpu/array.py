"""Arrays on a GPU: what calls of artifacts give back, and other libraries' arrays taken without a copy."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from .. import dlpack
from ..arrays import ITEM_SIZE, as_array, dtype_name, is_row_major, numpy_dtype
from ..errors import LaminaRuntimeError
from .drivers import Device, Memory

_LEGACY_STREAM, _THREAD_STREAM = 1, 2  # numbers of the default streams in the CUDA array interface and DLPack


class DeviceArray:
    """A contiguous array on a GPU, for anything that speaks DLPack, the CUDA array interface or numpy.

    Work on `stream` makes its content. The native entry reads these fields (`entry.py`).
    """

    __slots__ = ("__weakref__", "_owner", "device", "dtype", "pointer", "shape", "stream")

    def __init__(self, device: Device, pointer: int, shape: Sequence[int], dtype: str, owner: Any, stream: int):
        self.device, self.pointer, self.shape, self.dtype = device, pointer, tuple(shape), sys.intern(dtype)
        self._owner, self.stream = owner, stream

    @staticmethod
    def empty(device: Device, shape: Sequence[int], dtype: str, stream: int) -> DeviceArray:
        """Uninitialised memory."""
        memory = Memory(device, prod(shape) * ITEM_SIZE[dtype], stream)
        return DeviceArray(device, memory.pointer, shape, dtype, memory, stream)

    @staticmethod
    def of(device: Device, array: np.ndarray, stream: int) -> DeviceArray:
        """A copy of a numpy array."""
        source = np.ascontiguousarray(array)
        made = DeviceArray.empty(device, array.shape, dtype_name(array.dtype), stream)
        device.copy(made.pointer, source.__array_interface__["data"][0], source.nbytes, stream)
        device.synchronize(stream)  # the source may go away
        return made

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return prod(self.shape) * ITEM_SIZE[self.dtype]

    def __repr__(self) -> str:
        return f"<{self.dtype}{list(self.shape)} on {self.device.kind}:{self.device.index}>"

    def is_freed_after(self, stream: int) -> bool:
        """Is its memory ours, and freed in the order of `stream`?"""
        return isinstance(self._owner, Memory) and self._owner.stream == stream

    def copy(self) -> DeviceArray:
        """A copy on the device."""
        made = DeviceArray.empty(self.device, self.shape, self.dtype, self.stream)
        self.device.copy(made.pointer, self.pointer, self.nbytes, self.stream)
        return made

    def numpy(self) -> np.ndarray:
        """A copy in host memory; waits for the device."""
        made = np.empty(self.shape, numpy_dtype(self.dtype))
        self.device.copy(made.__array_interface__["data"][0], self.pointer, self.nbytes, self.stream)
        self.device.synchronize(self.stream)
        return made

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        made = self.numpy()
        return made if dtype is None else made.astype(dtype)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self.dtype == "bf16":
            raise AttributeError("the CUDA array interface has no bf16; use DLPack")
        typestr, stream = numpy_dtype(self.dtype).str, self.stream or _LEGACY_STREAM
        return {"shape": self.shape, "typestr": typestr, "data": (self.pointer, False), "version": 3, "stream": stream}

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device.dlpack, self.device.index

    def __dlpack__(self, *, stream: Any = None, **unused: Any) -> Any:
        if stream not in (None, -1) and (stream or _LEGACY_STREAM) != (self.stream or _LEGACY_STREAM):
            self.device.synchronize(self.stream)
        return dlpack.give(self.pointer, self.shape, self.dtype, self.device.index, self, self.device.dlpack)


def on_device(value: Any, name: str, device: Device, stream: int) -> DeviceArray:
    """`value` as an array whose content work on `stream` may read: in place where it is on the device, else a copy."""
    ours = isinstance(value, DeviceArray)
    if ours and value.device is device:
        if value.stream != stream:
            device.synchronize(value.stream)
        return value
    if ours or hasattr(value, "__dlpack_device__") and value.__dlpack_device__()[0] == device.dlpack:
        return DeviceArray(device, *dlpack.take(value, device.index, stream, name, device.dlpack), stream)
    interface = None if isinstance(value, np.ndarray) else getattr(value, "__cuda_array_interface__", None)
    if interface is not None:
        return _interfaced(interface, value, name, device, stream)
    return DeviceArray.of(device, as_array(value, name), stream)


def _interfaced(interface: Mapping[str, Any], owner: Any, name: str, device: Device, stream: int) -> DeviceArray:
    """An array that speaks the CUDA array interface alone, which does not tell the device: it must be `device`."""
    dtype, shape = np.dtype(interface["typestr"]), tuple(interface["shape"])
    strides = interface.get("strides")
    if strides and not is_row_major(shape, strides, dtype.itemsize):
        raise LaminaRuntimeError(f"input '{name}' is not contiguous; make a contiguous copy")
    made_on = interface.get("stream")
    if made_on is not None and made_on != (stream or _LEGACY_STREAM):
        device.synchronize(0 if made_on == _LEGACY_STREAM else made_on)
    return DeviceArray(device, interface["data"][0], shape, dtype_name(dtype), owner, stream)
