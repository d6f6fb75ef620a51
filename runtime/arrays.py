"""numpy arrays as the runtime sees them: element types by name, data pointers, arrays from other libraries."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from .errors import LaminaRuntimeError

_NUMPY = {
    "f64": "float64", "f32": "float32", "f16": "float16", "i64": "int64", "i32": "int32", "i16": "int16", "i8": "int8",
    "u64": "uint64", "u32": "uint32", "u16": "uint16", "u8": "uint8", "bool": "bool",
}  # fmt: skip
# numpy has no floats of 8 bits: they are arrays of their bytes, uint8; ml_dtypes' are taken too
FLOAT8 = {f"float8_{text.lower()}": "f8" + text for text in ("E4M3FN", "E5M2", "E4M3FNUZ", "E5M2FNUZ")}
_NUMPY |= dict.fromkeys(FLOAT8.values(), "uint8")
ITEM_SIZE = {name: np.dtype(text).itemsize for name, text in _NUMPY.items()} | {"bf16": 2}


@functools.cache
def numpy_dtype(name: str) -> np.dtype:
    """numpy's dtype of element type `name`; bf16 needs the package ml_dtypes, f8… is uint8."""
    if name == "bf16":
        try:
            import ml_dtypes
        except ImportError:
            raise LaminaRuntimeError("bf16 arrays need the package ml_dtypes: pip install 'lamina[bf16]'") from None
        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(_NUMPY[name])


def dtype_name(dtype: np.dtype) -> str:
    """Our name of a numpy dtype of any byte order, or numpy's own for one that we do not have."""
    dtype = dtype.newbyteorder("=")
    for name, text in _NUMPY.items():
        if dtype == text:
            return name
    return "bf16" if dtype.name == "bfloat16" else FLOAT8.get(dtype.name) or dtype.name


def as_stored(array: np.ndarray) -> np.ndarray:
    """The bytes of an array of f8…; other arrays unchanged."""
    return array.view(np.uint8) if array.dtype.name in FLOAT8 else array


def row_major(shape: Sequence[int], step: int = 1) -> tuple[int, ...]:
    """Strides of a contiguous tensor whose elements are `step` apart."""
    strides = []
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def is_row_major(shape: Sequence[int], strides: Sequence[int], step: int = 1) -> bool:
    """Are the elements those of a contiguous tensor, in order? The stride of a dim of size 1 does not matter."""
    return 0 in shape or all(n == 1 or s == t for n, s, t in zip(shape, strides, row_major(shape, step)))


def as_array(value: Any, name: str) -> np.ndarray:
    """An array on `value`'s memory: an array, or what has DLPack or the array interface."""
    if isinstance(value, np.ndarray):
        return value
    kind = type(value).__name__
    if hasattr(value, "__dlpack__"):
        try:
            return np.from_dlpack(value)
        except Exception as error:
            hint = "; bf16: pass an array of ml_dtypes" if "dtype" in str(error) else ""
            raise LaminaRuntimeError(f"input '{name}': cannot read this {kind}: {error}{hint}") from None
    if hasattr(value, "__array_interface__") or isinstance(value, (bool, int, float)):
        return np.asarray(value)
    raise LaminaRuntimeError(f"input '{name}' is a {kind}; pass a numpy array or an object with __dlpack__")


def pointer(array: np.ndarray) -> int:
    """The address of an array's first element."""
    return array.ctypes.data
