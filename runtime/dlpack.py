"""DLPack (version 0) without a library: device arrays of other packages read in place, and ours handed to them.

address, shape, dtype, owner = take(tensor, device, stream)
capsule = give(address, shape, dtype, device, owner)
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple

from .arrays import is_row_major, row_major
from .errors import LaminaRuntimeError, WrongDeviceError

CUDA, ROCM = 2, 10  # device types
_KINDS = {CUDA: "cuda", ROCM: "hip"}
_INT, _UINT, _FLOAT, _BFLOAT, _BOOL = 0, 1, 2, 4, 6
_CODES = {"i": _INT, "u": _UINT, "f": _FLOAT}
_FLOAT8 = {"f8E4M3FN": 10, "f8E4M3FNUZ": 11, "f8E5M2": 12, "f8E5M2FNUZ": 13}


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Managed(ctypes.Structure):
    pass


_Deleter = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Managed))
_Managed._fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _Deleter)]

_python = ctypes.pythonapi
_python.PyCapsule_GetPointer.restype = ctypes.c_void_p
_python.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_python.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]
_python.PyCapsule_New.restype = ctypes.py_object
_python.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_NAME, _USED = b"dltensor", b"used_dltensor"
_alive: dict[int, Any] = {}  # what capsules that were handed out point to


def _code(dtype: str) -> tuple[int, int]:
    if dtype in ("bf16", "bool"):
        return (_BFLOAT, 16) if dtype == "bf16" else (_BOOL, 8)
    return (_FLOAT8[dtype], 8) if dtype in _FLOAT8 else (_CODES[dtype[0]], int(dtype[1:]))


def _dtype(code: int, bits: int) -> str:
    if code in (_BFLOAT, _BOOL):
        return "bf16" if code == _BFLOAT else "bool"
    for name, number in (_CODES | _FLOAT8).items():
        if number == code:
            return name if name in _FLOAT8 else f"{name}{bits}"
    return f"DLPack type {code} of {bits} bits"


class _Owner:
    """Calls a foreign tensor's deleter once nobody needs it."""

    def __init__(self, managed: Any, source: Any):
        self._managed, self._source = managed, source

    def __del__(self) -> None:
        if self._managed and self._managed.contents.deleter:
            self._managed.contents.deleter(self._managed)


def take(value: Any, device: int, stream: int, name: str, kind: int = CUDA) -> tuple[int, tuple[int, ...], str, Any]:
    """Address, shape, element type and owner of a contiguous array on GPU `device` of a kind; `name` is for messages.

    The producer makes its memory ready for `stream`.
    """
    found, index = value.__dlpack_device__()
    if (found, index) != (kind, device):
        where = f"{_KINDS[found]}:{index}" if found in _KINDS else "another kind of device"
        raise WrongDeviceError(f"input '{name}' is on {where}, the model on {_KINDS[kind]}:{device}; move it there")
    # DLPack's number of the default stream is 1 for CUDA, 0 for ROCm
    capsule = value.__dlpack__(stream=stream or int(kind == CUDA))
    managed = ctypes.cast(_python.PyCapsule_GetPointer(capsule, _NAME), ctypes.POINTER(_Managed))
    _python.PyCapsule_SetName(capsule, _USED)
    t = managed.contents.tensor
    shape = tuple(t.shape[i] for i in range(t.ndim))
    if t.strides and not is_row_major(shape, t.strides[: t.ndim]):
        raise LaminaRuntimeError(f"input '{name}' is not contiguous; make a contiguous copy")
    return (t.data or 0) + t.byte_offset, shape, _dtype(t.code, t.bits), _Owner(managed, value)


class _Exchange(ctypes.Structure):
    """`DLPackExchangeAPI`, version 1: functions of C by which a class of arrays does what DLPack's methods do."""

    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("older", ctypes.c_void_p),
        ("allocate", ctypes.c_void_p),
        ("managed_from_object", ctypes.c_void_p),
        ("object_from_managed", ctypes.c_void_p),
        ("tensor_from_object", ctypes.c_void_p),  # (object, &DLTensor); the object keeps what it points to
        ("current_stream", ctypes.c_void_p),  # (device type, device number, &stream)
    ]


class Exchanged(NamedTuple):
    """What an array's class tells natively, and the addresses of the functions that tell it."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: int  # the word of code, bits and lanes
    read: int
    current_stream: int


def exchanged(value: Any, kind: int, device: int) -> Exchanged | None:
    """An array on GPU `device` of a kind as its class's functions of C describe it; None if it has none."""
    capsule = getattr(type(value), "__dlpack_c_exchange_api__", None)
    if capsule is None:
        return None
    api = _Exchange.from_address(_python.PyCapsule_GetPointer(capsule, b"dlpack_exchange_api"))
    if api.major != 1 or not api.tensor_from_object or not api.current_stream:
        return None
    found = _Tensor()
    read = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)(api.tensor_from_object)
    try:
        failed = read(value, ctypes.addressof(found))
    except Exception:  # whatever the library raises: its method __dlpack__ will say it again
        return None
    if failed or (found.device_type, found.device_id) != (kind, device):
        return None
    shape = tuple(found.shape[: found.ndim])
    strides = tuple(found.strides[: found.ndim]) if found.strides else (0,) * found.ndim
    dtype = found.code | found.bits << 8 | found.lanes << 16
    return Exchanged(shape, strides, dtype, api.tensor_from_object, api.current_stream)


@_Deleter
def _release(managed: Any) -> None:
    _alive.pop(ctypes.addressof(managed.contents), None)


def give(address: int, shape: Sequence[int], dtype: str, device: int, owner: Any, kind: int = CUDA) -> Any:
    """A capsule for contiguous device memory; `owner` lives as long as whoever takes it wants."""
    rank = len(shape)
    sizes = (ctypes.c_int64 * max(2 * rank, 1))(*shape, *row_major(shape))
    managed = _Managed()
    t = managed.tensor
    t.data, t.device_type, t.device_id, t.ndim = address, kind, device, rank
    (t.code, t.bits), t.lanes = _code(dtype), 1
    pointer = ctypes.POINTER(ctypes.c_int64)
    t.shape = ctypes.cast(sizes, pointer)
    t.strides = ctypes.cast(ctypes.addressof(sizes) + 8 * rank, pointer)
    managed.deleter = _release
    key = ctypes.addressof(managed)
    _alive[key] = (managed, sizes, owner)
    return _python.PyCapsule_New(key, _NAME, None)
