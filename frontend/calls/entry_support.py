"""What native entries under torch need of this process: their machine code, addresses of functions, facts of torch.

A torch that lays out its objects in another way, or lacks a function, gives None; calls are made in Python then.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from ...compiler.errors import CompileError
from ...runtime.entry import RAISING, addresses
from ...runtime.loader import Image
from .. import compat, weights
from .entry_image import entry_image

# table slot -> exported name, in libtorch_cpu, libtorch_python and CPython
_TORCH = {
    "get_data_ptr": "aoti_torch_get_data_ptr",
    "get_dim": "aoti_torch_get_dim",
    "get_sizes": "aoti_torch_get_sizes",
    "get_strides": "aoti_torch_get_strides",
    "empty_strided": "aoti_torch_empty_strided",
    "delete_tensor": "aoti_torch_delete_tensor_object",
    "get_threads": "torch_get_num_threads",
}
_TORCH_PYTHON = {"wrap": "_Z16THPVariable_WrapON2at10TensorBaseE"}
_PYTHON = RAISING | {
    "tuple_new": "PyTuple_New",
    "tuple_set": "PyTuple_SetItem",
    "long_value": "PyLong_AsLongLongAndOverflow",
    "save_thread": "PyEval_SaveThread",
    "restore_thread": "PyEval_RestoreThread",
}


@dataclass(frozen=True)
class Support:
    """What every table shares: the code, addresses of functions, facts of this torch and Python."""

    image: Image
    address: int  # of the code
    slots: dict[str, int]
    dtype_codes: dict[torch.dtype, int]


def support(code: Callable[[], str], name: str, more: dict[str, int]) -> Support | None:
    """What tables for the entry with LLVM IR `code` share, with `more` slots; None if this torch lacks something."""
    weights.watch()
    offset = compat.tensor_offset()
    try:
        torch_cpu, torch_python = torch_library("cpu"), torch_library("python")
        slots = addresses(torch_cpu, _TORCH) | addresses(torch_python, _TORCH_PYTHON)
        slots |= addresses(ctypes.pythonapi, _PYTHON) | more
        slots["tensor_class"] = ctypes.c_void_p.in_dll(torch_python, "THPVariableClass").value or 0
        slots["parameter_class"] = ctypes.c_void_p.in_dll(torch_python, "ParameterClass").value or 0
    except (OSError, AttributeError, ValueError):
        return None
    if offset is None or slots["tensor_class"] != id(torch.Tensor):
        return None
    outer, inner = compat.version_slot() or (-1, 0)
    slots |= {"tensor_offset": offset, "int_class": id(int), "version_outer": outer, "version_inner": inner}
    codes = {}
    for dtype in _CODED:
        function = getattr(torch_cpu, f"aoti_torch_dtype_{str(dtype).removeprefix('torch.')}", None)
        if function is not None:
            codes[dtype] = function()
    try:
        image = Image(entry_image(code, name).result(), name)
    except CompileError:
        return None
    return Support(image, image.address("lamina_entry"), slots, codes)


_CODED = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.bool)
_CODED += (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
_CODED += (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz)


def torch_library(name: str) -> ctypes.CDLL:
    """`libtorch_NAME`, which this process has loaded; OSError if this torch has none."""
    suffix = "dylib" if sys.platform == "darwin" else "so"
    return ctypes.CDLL(str(Path(str(torch.__file__)).parent / "lib" / f"libtorch_{name}.{suffix}"))
