"""Calls of artifacts on GPUs through native code: the tables behind the entry that artifacts carry for hosts.

`bind(caller, address)` means `caller.general`. Of shapes and element types that were seen before, a call is checked, its
results allocated and its kernels launched by machine code (compiler/native/gpu_entry_ir.py), if arguments are DeviceArrays
or of a class that tells by functions of C what DLPack would (`__dlpack_c_exchange_api__`; torch from 2.10 on).
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .. import dlpack
from ..entry import PYTHON, Chain, Table, addresses, has_known_layout, rows
from . import table
from .array import DeviceArray
from .drivers import Memory
from .launches import Launches, program_words
from .program import DEVICE_ALIGN

if TYPE_CHECKING:
    from ..loader import Image
    from ..program import Prepared
    from .call import GpuCaller

_PYTHON = PYTHON | {"compare": "PyObject_RichCompareBool"}
_FIELDS = ("device", "dtype", "pointer", "shape", "stream")


def bind(caller: GpuCaller, image: Image) -> Callable[..., Any]:
    """The builtin for `caller` of the entry in `image`, or `caller.general` where this Python or driver offers none."""
    facts = _facts()
    if facts is None or not caller.has_plain_results:
        return caller.general
    try:
        words = facts | program_words(caller.program)
    except AttributeError:
        return caller.general
    return _GpuEntry(caller, words, image).chain.call


class _GpuEntry:
    """The chain of one caller, and the slow path behind it."""

    def __init__(self, caller: GpuCaller, words: dict[str, int], image: Image):
        self.caller, self.image = caller, image
        device = caller.program.device
        self._words = words | {
            "pool": device.pool,
            "device": id(device),
            "dlpack_device": device.dlpack | device.index << 32,
            "alignment": DEVICE_ALIGN - 1,
            "arguments": len(caller.arguments),
        }
        self.chain = Chain(image.address(table.ENTRY), lambda: _GpuTable(caller, self._words), self._slow)
        caller.changed = self.chain.forget

    def _slow(self, stream: int, *values: Any) -> Any:
        result = self.caller.general(stream, *values)
        kinds = [self._kind(*given) for given in zip(self.caller.arguments, values)]
        if None not in kinds:
            self.chain.fill(tuple(kinds), lambda known: known.memoise(values))
        return result

    def _kind(self, number: int, value: Any) -> Any:
        """What must be equal for native code to take an argument of input `number`; None if it cannot."""
        if number in self.caller.scalars:
            return value if type(value) is int else None
        if type(value) is DeviceArray:
            return value.shape, value.dtype
        device = self.caller.program.device
        seen = dlpack.exchanged(value, device.dlpack, device.index)
        return None if seen is None else (type(value), seen.shape, seen.strides, seen.dtype)


class _GpuTable(Table):
    """One call of a program on a GPU."""

    def __init__(self, caller: GpuCaller, words: dict[str, int]):
        super().__init__(table.SLOT, words)
        self.caller = caller
        self._made: tuple[tuple[int, ...], Launches] | None = None

    @property
    def busy(self) -> bool:
        return bool(self.slots[table.SLOT["busy"]])

    def memoise(self, values: tuple[Any, ...]) -> None:
        """Fill the table for calls like this one."""
        caller, program = self.caller, self.caller.program
        plan, constants = program.plan, caller.constants
        symbols = caller.symbols(values)
        prepared = program.prepare(symbols)
        if self._made is None or self._made[0] != symbols:
            graphs = caller.graphs and not plan["symbols"]
            self._made = symbols, Launches(program.device, program.walk(symbols), graphs)
        made = self._made[1]
        buffers, first = made.walk.table, len(plan["inputs"])
        buffers[first : first + len(constants.pointers)] = constants.pointers
        kept: list[Any] = [constants, made]
        arguments = self._arguments(values, kept)
        outputs, finish = self._outputs(prepared, buffers, first + len(constants.pointers))
        self.kept = [*kept, arguments, outputs, finish]
        self.set(
            **made.words,
            argument_table=ctypes.addressof(arguments),
            outputs=len(prepared.buffers),
            output_table=ctypes.addressof(outputs),
            buffers=ctypes.addressof(buffers),
            finish=id(finish),
            valid=1,
        )
        if caller.constants is not constants:  # swapped meanwhile, in another thread
            self.set(valid=0)

    def _arguments(self, values: tuple[Any, ...], kept: list[Any]) -> ctypes.Array:
        words, device = list[int](), self.caller.program.device
        for number, value in zip(self.caller.arguments, values):
            if number in self.caller.scalars:
                row = [table.INT, value]
            elif type(value) is DeviceArray:
                kept += [value.shape, value.dtype]
                row = [table.OURS, id(DeviceArray), number, id(value.shape), id(value.dtype)]
            else:
                seen = dlpack.exchanged(value, device.dlpack, device.index)
                assert seen is not None, "its kind was told"
                sizes, strides = rows(seen.shape, 1), rows(seen.strides, 1)
                kept += [type(value), sizes, strides]
                shape = [len(seen.shape), ctypes.addressof(sizes), ctypes.addressof(strides)]
                row = [table.EXCHANGED, id(type(value)), number, seen.read, seen.dtype, *shape, seen.current_stream]
            words += row + [0] * (table.ARGUMENT_WORDS - len(row))
        return rows(words, table.ARGUMENT_WORDS)

    def _outputs(self, prepared: Prepared, buffers: ctypes.Array, first: int) -> tuple[ctypes.Array, Callable[[], Any]]:
        """The rows of the results, and what makes arrays of them once their memory is taken and their work enqueued."""
        device, slots, stream_at = self.caller.program.device, self.slots, table.SLOT["stream"]
        specs = [(first + n, tuple(b.shape), b.dtype, b.bytes) for n, b in enumerate(prepared.buffers)]

        def finish() -> Any:
            stream = slots[stream_at]
            made = tuple(
                DeviceArray(device, p := buffers[slot], shape, dtype, Memory(device, size, stream, p), stream)
                for slot, shape, dtype, size in specs
            )
            return made[0] if len(made) == 1 else made

        words = [word for slot, _, _, size in specs for word in (max(size, DEVICE_ALIGN), slot)]
        return rows(words, table.OUTPUT_WORDS), finish


@functools.cache
def _facts() -> dict[str, int] | None:
    """The words that all tables share; None where Python is not laid out as the code expects."""
    offsets = _offsets()
    if not has_known_layout() or offsets is None:
        return None
    try:
        return addresses(ctypes.pythonapi, _PYTHON) | offsets | {"int_class": id(int)}
    except AttributeError:
        return None


def _offsets() -> dict[str, int] | None:
    """Where a DeviceArray keeps its fields, found by looking for known objects."""
    probe, found = DeviceArray.__new__(DeviceArray), {}
    for name in _FIELDS:
        setattr(probe, name, object())
    for name in _FIELDS:
        at = (o for o in range(16, DeviceArray.__basicsize__, 8) if ctypes.c_size_t.from_address(id(probe) + o).value == id(getattr(probe, name)))  # fmt: skip
        found[f"array_{name}"] = next(at, 0)
    return found if all(found.values()) else None
