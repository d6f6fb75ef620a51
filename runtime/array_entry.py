"""Calls from numpy through native code: the tables behind the entry that every image carries.

`bind(caller)` means `caller.general`. Of shapes, strides and element types that were seen before, a call is checked, its
results allocated and the program called by machine code (compiler/native/array_entry_ir.py), in about a microsecond.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from . import array_table as layout
from . import threads
from .arrays import numpy_dtype, pointer, row_major
from .entry import PYTHON, RAISING, SHARED, TINY, Chain, Table, addresses, has_known_layout, rows
from .errors import LaminaRuntimeError
from .program import Prepared

if TYPE_CHECKING:
    from .call import Caller

_PYTHON = PYTHON | RAISING | {
    "tuple_new": "PyTuple_New", "tuple_set": "PyTuple_SetItem", "increment": "Py_IncRef", "dict_get": "PyDict_GetItem"
}  # fmt: skip
_TORCH = sys.intern("torch")


def bind(caller: Caller) -> Callable[..., Any]:
    """The builtin for `caller`, or `caller.general` where this Python, numpy or image offers none."""
    facts = _facts()
    if facts is None or not caller.has_plain_results:
        return caller.general
    try:
        address = caller.program.image.address(layout.ENTRY)
    except LaminaRuntimeError:
        return caller.general  # an artifact made before there was one
    return _ArrayEntry(caller, facts, address).chain.call


class _ArrayEntry:
    """The chain of one caller, and the slow path behind it."""

    def __init__(self, caller: Caller, facts: dict[str, int], address: int):
        self.caller = caller
        plan = caller.program.plan
        self._results = len(plan["buffers"])
        self._first_output = len(plan["inputs"]) + len(plan["weights"]) + len(plan["persistent"])
        self._words = facts | {
            "main": caller.program.main_address,
            "shared": ctypes.addressof(SHARED.cells),
            "epoch_cell": threads.epoch_address(),
            "arena_buffer": self._first_output + self._results,
            "arguments": len(plan["inputs"]),
            "outputs": self._results,
        }
        self.chain = Chain(address, self._table, self._slow)
        caller.changed = self.chain.forget

    def _table(self) -> Table:
        return Table(layout.SLOT, self._words, self._failed)

    def _failed(self, status: int) -> Any:
        raise self.caller.program.failure(status)

    def _slow(self, out: Any, *inputs: Any) -> Any:
        result = self.caller.general(out, *inputs)
        if len(inputs) == len(self.caller.arguments) and all(map(self._usable, self.caller.arguments, inputs)):
            kinds = tuple(v if type(v) is int else (v.shape, v.strides, id(v.dtype)) for v in inputs)
            self.chain.fill(kinds, lambda table: self._memoise(table, inputs))
        return result

    def _usable(self, number: int, value: Any) -> bool:
        """Can native code take argument `value` of input `number` as it is?"""
        if number in self.caller.scalars:
            return type(value) is int
        plain = type(value) is np.ndarray and value.flags.c_contiguous and value.flags.aligned
        return plain and value.dtype == self.caller.dtypes[number]

    def _memoise(self, table: Table, inputs: tuple[Any, ...]) -> None:
        caller, program = self.caller, self.caller.program
        torch = sys.modules.get(_TORCH)
        source = threads.provider()
        if source.counter < 0 or (torch is not None and not hasattr(torch, "get_num_threads")) or program.contexts.hook:
            return  # the count cannot be read; torch is being imported; a profiler watches
        epoch = threads.epoch()
        context, count = program.contexts.current(caller.threads), source.count()
        prepared = program.prepare(caller.symbols(inputs))
        if not all(o.whole for o in caller.shown(prepared)):
            return
        constants = caller.constants
        buffers = (ctypes.c_int64 * (self._first_output + self._results + 1))()
        buffers[len(inputs) : self._first_output] = constants.pointers
        kept: list[Any] = [prepared, constants, buffers, torch]
        arguments, used = self._arguments(inputs, buffers, kept)
        outputs = self._outputs(prepared, kept)
        SHARED.reserve(prepared.arena_bytes)
        touched = used + prepared.arena_bytes + sum(b.bytes for b in prepared.buffers) + caller.constant_bytes
        table.kept = [*kept, arguments, outputs]
        table.set(
            context=context,
            torch=0 if torch is None else id(torch),
            counter=source.counter,
            threads=count,
            epoch=epoch,
            release=int(touched > TINY),
            argument_table=ctypes.addressof(arguments),
            output_table=ctypes.addressof(outputs),
            buffers=ctypes.addressof(buffers),
            dims=prepared.dims_address,
            valid=1,
        )
        if caller.constants is not constants:  # swapped meanwhile, in another thread
            table.set(valid=0)

    def _arguments(self, inputs: tuple[Any, ...], buffers: ctypes.Array, kept: list[Any]) -> tuple[ctypes.Array, int]:
        """The rows of the arguments, and how many bytes those have."""
        words: list[int] = []
        total = 0
        for number, value in zip(self.caller.arguments, inputs):
            if number in self.caller.scalars:
                cell = ctypes.c_int64(value)
                buffers[number] = ctypes.addressof(cell)
                kept.append(cell)
                words += [layout.INT, value, 0, 0, 0, 0, number, 0, 0]
                continue
            written = number in self.caller.mutated
            flags = layout.ALIGNED | (layout.WRITEABLE if written else 0)
            dims = [value.ndim, _numbers(value.shape, kept), _numbers(value.strides, kept)]
            words += [layout.ARRAY, *dims, id(value.dtype), flags, number, value.nbytes, int(written)]
            kept.append(value.dtype)
            total += value.nbytes
        return rows(words, layout.ARGUMENT_WORDS), total

    def _outputs(self, prepared: Prepared, kept: list[Any]) -> ctypes.Array:
        words: list[int] = []
        for number, buffer in enumerate(prepared.buffers):
            dtype, shape = numpy_dtype(buffer.dtype), tuple(buffer.shape)
            strides = _numbers(row_major(shape, dtype.itemsize), kept)
            words += [len(shape), _numbers(shape, kept), strides, id(dtype), id(shape)]
            words += [self._first_output + number, buffer.bytes]
            kept += [dtype, shape]
        return rows(words, layout.OUTPUT_WORDS)


def _numbers(values: Any, kept: list[Any]) -> int:
    array = rows(list(values), 1)
    kept.append(array)
    return ctypes.addressof(array)


@functools.cache
def _facts() -> dict[str, int] | None:
    """The words that all tables share; None where Python or numpy are not laid out as the code of images expects."""
    if not has_known_layout() or not _layout_holds():
        return None
    try:
        functions = addresses(ctypes.pythonapi, _PYTHON)
    except AttributeError:
        return None
    objects = {
        "array_class": np.ndarray, "tuple_class": tuple, "int_class": int, "none": None, "empty": np.empty,
        "modules": sys.modules, "torch_name": _TORCH,
    }  # fmt: skip
    return functions | {name: id(value) for name, value in objects.items()}


def _layout_holds() -> bool:
    """Are the fields of arrays, bytes and tuples where the code of images looks for them?"""
    frozen = np.zeros(3)
    frozen.flags.writeable = False
    pair = frozen, frozen
    items = (ctypes.c_size_t * 2).from_address(id(pair) + layout.TUPLE_ITEMS)
    return (
        all(map(_array_holds, (np.zeros((3, 5), np.float64)[1:], np.zeros(8, np.uint8), frozen)))
        and ctypes.c_ssize_t.from_address(id(pair) + layout.TUPLE_SIZE).value == 2
        and list(items) == [id(frozen)] * 2
    )


def _array_holds(a: np.ndarray) -> bool:
    def word(offset: int, kind: Any = ctypes.c_size_t) -> int:
        return kind.from_address(id(a) + offset).value

    flags = layout.ALIGNED | (layout.WRITEABLE if a.flags.writeable else 0)
    return (
        word(layout.DATA) == pointer(a)
        and word(layout.NDIM, ctypes.c_int) == a.ndim
        and word(layout.DTYPE) == id(a.dtype)
        and word(layout.FLAGS, ctypes.c_int) & (layout.ALIGNED | layout.WRITEABLE) == flags
        and tuple((ctypes.c_int64 * a.ndim).from_address(word(layout.SIZES))) == a.shape
        and tuple((ctypes.c_int64 * a.ndim).from_address(word(layout.STRIDES))) == a.strides
    )
