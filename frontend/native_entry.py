"""A compiled part as a CPython builtin: the table behind `entry_code`, filled in Python, read by native code.

`bind(native, …)` gives a callable that means the same as `native` and costs under a microsecond while sizes and weights
are those of the last call. Anything else goes through the slow path, which calls `native` and memoises anew. It returns
None where something is missing (a torch with another layout, results that need copies): `native` is called then.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ..runtime.arena import allocate
from ..runtime.loader import Image
from . import compat, weights
from .entry_code import ARGUMENT_WORDS, INT, OUTPUT_WORDS, SLOT, SLOTS, TENSOR, WEIGHT, entry_ir
from .launcher import Call, Native

_METH_FASTCALL = 0x80

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
_PYTHON = {
    "tuple_new": "PyTuple_New",
    "tuple_set": "PyTuple_SetItem",
    "vectorcall": "PyObject_Vectorcall",
    "long_value": "PyLong_AsLongLongAndOverflow",
    "save_thread": "PyEval_SaveThread",
    "restore_thread": "PyEval_RestoreThread",
}


class _MethodDef(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    ]


@dataclass(frozen=True)
class Support:
    """What every table shares: the code, addresses of functions, facts of this torch and Python."""

    image: Image
    method: _MethodDef
    slots: dict[str, int]
    dtype_codes: dict[torch.dtype, int]


def bind(native: Native) -> Callable[..., Any] | None:
    """The builtin for `native`, or None."""
    support = _support()
    if support is None or native.program.contexts.hook:
        return None
    return Table(native, support).bind()


class Table:
    """One part's table; `slow` is the callable behind it."""

    names = SLOT  # the table's slots

    def __init__(self, native: Native, support: Support):
        self.native, self.support = native, support
        self.slots = (ctypes.c_int64 * len(SLOTS))()
        for name, value in support.slots.items():
            self.slots[SLOT[name]] = value
        plan = native.program.plan
        self.first_output = len(plan["inputs"]) + len(plan["weights"]) + len(plan["persistent"])
        self.buffers = (ctypes.c_int64 * (self.first_output + len(plan["buffers"]) + 2))()
        self._kept: list[Any] = []
        self._set(
            main=native.program.main_address,
            buffers=ctypes.addressof(self.buffers),
            shared=ctypes.addressof(_SHARED.cells),
            arena_buffer=self.first_output + len(plan["buffers"]),
            epoch_cell=weights.epoch_address(),
        )

    def bind(self) -> Callable[..., Any]:
        """The builtin; it owns this table."""
        anchor = _Anchor(ctypes.addressof(self.slots).to_bytes(8, sys.byteorder))
        anchor.table, anchor.slow = self, self.slow
        self._set(slow=id(anchor.slow))
        make = ctypes.pythonapi.PyCFunction_NewEx
        make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]
        return make(ctypes.addressof(self.support.method), anchor, None)

    def slow(self, *args: Any) -> tuple[torch.Tensor, ...]:
        """Call in Python, then memoise this call's sizes and weights for the native code."""
        self._set(valid=0)
        results = self.native(*args)
        if not self.busy:
            self._memoise(args)
        return results

    @property
    def busy(self) -> bool:
        """True while another thread runs what the table describes."""
        return _SHARED.busy

    def _memoise(self, args: tuple[Any, ...]) -> None:
        native = self.native
        call = native.call(native.signature.symbols(args))
        tensors = args[: native.signature.tensors]
        if not self._fits(call, tensors):
            return
        constants = native.constants(list(tensors))
        context = native.program.contexts.current()
        self._kept = [call, constants, tensors if native.weight_arguments else None]
        arguments = self._arguments(args, call)
        outputs = self._outputs(call)
        for i, pointer in enumerate(constants.pointers):
            self.buffers[len(native.input_arguments) + i] = pointer
        _SHARED.reserve(call.prepared.arena_bytes)
        self._kept += [arguments, outputs]
        self._set(
            context=context,
            threads=torch.get_num_threads(),
            dims=call.prepared.dims_address,
            arguments=len(args),
            argument_table=ctypes.addressof(arguments),
            outputs=len(call.buffers),
            output_table=ctypes.addressof(outputs),
            epoch=weights.epoch(),
            valid=1,
        )

    def _fits(self, call: Call, tensors: tuple[Any, ...]) -> bool:
        """True if native code can make this call: plain tensors laid out as expected, and all results whole buffers."""
        native = self.native
        if not all(isinstance(t, torch.Tensor) and t.numel() for t in tensors):
            return False
        if [i for i, _ in call.results] != list(range(len(call.buffers))):
            return False
        if any(spec[2] not in self.support.dtype_codes for spec in call.buffers):
            return False
        if any(t.stride() != s for t, s in zip(tensors, call.strides)):
            return False
        key = weights.fingerprint([tensors[i] for i in native.weight_arguments], native.frozen)
        return not native.weight_arguments or key is not None

    def _arguments(self, args: tuple[Any, ...], call: Call) -> ctypes.Array:
        native = self.native
        place = {argument: slot for slot, argument in enumerate(native.input_arguments)}
        weight_place = {a: len(native.input_arguments) + i for i, a in enumerate(native.weight_arguments)}
        unused = len(self.buffers) - 1  # a slot that nobody reads, for arguments that the program does not use
        words: list[int] = []
        for i, arg in enumerate(args):
            if i >= native.signature.tensors:
                words += [INT, arg, 0, 0, 0, unused]
                value = ctypes.c_int64(arg)
                self._kept.append(value)
                if i in place:
                    self.buffers[place[i]] = ctypes.addressof(value)
            elif i in weight_place and native.has_init:
                words += [WEIGHT, id(arg), arg.data_ptr(), 0 if native.frozen else arg._version, 0, weight_place[i]]
            else:
                slot = place.get(i, weight_place.get(i, unused))
                size, stride = self._numbers(call.sizes[i]), self._numbers(call.strides[i])
                words += [TENSOR, arg.dim(), size, stride, 0, slot]
        return (ctypes.c_int64 * (len(words) + ARGUMENT_WORDS))(*words)

    def _outputs(self, call: Call) -> ctypes.Array:
        words: list[int] = []
        for i, (size, stride, dtype) in enumerate(call.buffers):
            code = self.support.dtype_codes[dtype]
            words += [len(size), self._numbers(size), self._numbers(stride), code, self.first_output + i]
        return (ctypes.c_int64 * (len(words) + OUTPUT_WORDS))(*words)

    def _numbers(self, values: tuple[int, ...]) -> int:
        array = (ctypes.c_int64 * (len(values) + 1))(*values)
        self._kept.append(array)
        return ctypes.addressof(array)

    def _set(self, **slots: int) -> None:
        for name, value in slots.items():
            self.slots[self.names[name]] = value


class _Anchor(bytes):
    """The `self` of a builtin: its content is the table's address, its attributes keep the table alive."""

    table: Table
    slow: Callable[..., Any]


class _Shared:
    """What all tables share: whether some thread is running a program, and the arena for it."""

    def __init__(self) -> None:
        self.cells = (ctypes.c_int64 * 2)()
        self.block: Any = None
        self.size = 0

    @property
    def busy(self) -> bool:
        return bool(self.cells[0])

    def reserve(self, size: int) -> None:
        """Make the arena at least `size` bytes; only while nothing runs."""
        if size > self.size:
            self.block, self.cells[1] = allocate(size)
            self.size = size

    def forget(self) -> None:
        """In a forked child: no thread of the parent's runs here."""
        self.cells[0] = 0


_SHARED = _Shared()


@functools.cache
def _support() -> Support | None:
    return support(entry_ir(), "native_entry", {})


def support(code: str, name: str, more: dict[str, int]) -> Support | None:
    """What tables for the entry with LLVM IR `code` share, with `more` slots; None if this torch lacks something."""
    weights.watch()  # a forked child must not run with its parent's threads: the epoch changes there
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_SHARED.forget)
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
    from ..compiler.api import CompileError, compile_llvm

    try:
        image = Image(compile_llvm(code, ["lamina_entry"], name=name), name)
    except CompileError:
        return None
    method = _MethodDef(b"lamina_entry", image.address("lamina_entry"), _METH_FASTCALL, None)
    return Support(image, method, slots, codes)


_CODED = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.bool)
_CODED += (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def torch_library(name: str) -> ctypes.CDLL:
    """`libtorch_NAME`, which this process has loaded; OSError if this torch has none."""
    return ctypes.CDLL(str(Path(str(torch.__file__)).parent / "lib" / f"libtorch_{name}.so"))


def addresses(library: Any, names: dict[str, str]) -> dict[str, int]:
    """The addresses of exported functions; AttributeError if one is missing."""
    return {slot: ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0 for slot, name in names.items()}
