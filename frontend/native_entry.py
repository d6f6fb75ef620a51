"""A compiled part as a CPython builtin: the tables behind `entry_code`, filled in Python, read by native code.

`bind(native, …)` gives a callable that means the same as `native` and costs under a microsecond for sizes that it has
seen and weights that have not changed since. Anything else goes through the slow path, which calls `native` and memoises
anew (runtime/entry.py). It returns None where something is missing (a torch with another layout): `native` is called then.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch

from ..compiler.errors import CompileError
from ..dialects import dims
from ..dialects.dims import Dim
from ..runtime import entry, threads
from ..runtime.arena import ALIGN
from ..runtime.entry import SHARED, TINY, Chain, addresses
from ..runtime.loader import Image
from ..runtime.program import Prepared
from . import compat, weights
from .entry_code import entry_ir
from .entry_image import entry_image
from .entry_table import ARGUMENT_WORDS, INT, OUTPUT_WORDS, SLOT, TENSOR, WEIGHT
from .launcher import Call, Native, eager_error
from .size_steps import SizeSteps
from .symbolic_call import SymbolicCall

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


@dataclass(frozen=True)
class Support:
    """What every table shares: the code, addresses of functions, facts of this torch and Python."""

    image: Image
    method: Any
    slots: dict[str, int]
    dtype_codes: dict[torch.dtype, int]


def bind(native: Native) -> Callable[..., Any] | None:
    """The builtin for `native`, or None."""
    support = _support()
    if support is None or native.program.contexts.hook:
        return None
    return _Entry(native, support).chain.call


class _Entry:
    """The tables of one part on the CPU, and the slow path behind them."""

    def __init__(self, native: Native, support: Support):
        self.native = native
        self.chain = Chain(support.method, lambda: _CpuTable(native, support), self.slow)

    def slow(self, *args: Any) -> tuple[torch.Tensor, ...]:
        """Call in Python, then memoise this call's sizes and weights for the native code."""
        status = SHARED.take_status()
        if status:
            raise eager_error(self.native.program.failure(status))
        results = self.native(*args)
        symbols = self.native.signature.symbols(args)
        call = self.native.call(symbols)
        head = self.chain.tables[0]
        assert isinstance(head, _CpuTable)
        if head.fits(call, args[: self.native.signature.tensors]) and not head.settled(args, call):
            self.chain.fill(head.key(symbols), lambda table: table.memoise(args, call))
        return results


class Table(entry.Table):
    """What tables of parts have in common: rows of arguments and results. `buffers` is the array of pointers.

    The table of a part with symbols is for calls of all sizes where it can be (`steps`), else for those of one tuple.
    """

    names = SLOT  # the table's slots
    buffers: ctypes.Array
    steps: SizeSteps | None = None
    facts: tuple[Any, ...] = ()  # `now` when the table was filled

    def __init__(self, native: Any, support: Support):
        super().__init__(self.names, support.slots)
        self.native, self.support = native, support
        plan = native.program.plan
        self.first_output = len(plan["inputs"]) + len(plan["weights"]) + len(plan["persistent"])
        # where nothing was computed from weights, an optimiser's step makes nothing stale: only a fork does
        self.clock = weights if native.has_init else threads
        self.set(epoch_cell=self.clock.epoch_address())

    def key(self, symbols: tuple[int, ...]) -> Hashable:
        """What calls that one table serves have in common."""
        return symbols if self.native.symbolic is None else "all sizes"

    def settled(self, args: tuple[Any, ...], call: Call) -> bool:
        """True if this table is for all sizes and would be filled as it is: Python has been called for another reason."""
        return self.steps is not None and bool(self.slots[self.names["valid"]]) and self.facts == self.now(args, call)

    def now(self, args: tuple[Any, ...], call: Call) -> tuple[Any, ...]:
        """What a filled table depends on besides the symbols."""
        chosen = [args[i] for i in self.native.weight_arguments] if self.native.has_init else []
        return self.clock.epoch(), *[(id(w), w._version) for w in chosen]

    def begin(self, symbols: tuple[int, ...]) -> None:
        """Forget the steps of the call before, and begin new ones if tables are for all sizes."""
        self.steps = None
        if self.native.symbolic is not None:
            self.steps = SizeSteps([s["name"] for s in self.native.program.plan["symbols"]], symbols)

    def follow(self, args: tuple[Any, ...], call: Call) -> dict[str, int]:
        """The slots by which the table follows the sizes."""
        self.facts = self.now(args, call)
        return {"follow_symbols": 0} if self.steps is None else self.steps.words(self.native.signature.sources)

    def fits(self, call: Call, tensors: tuple[Any, ...]) -> bool:
        """True if native code can make this call: plain tensors laid out as expected, and all results whole buffers."""
        native = self.native
        if not all(isinstance(t, torch.Tensor) and t.numel() for t in tensors):
            return False
        if sorted(call.order) != list(range(len(call.buffers))):
            return False
        if any(spec[2] not in self.support.dtype_codes for spec in call.buffers):
            return False
        if any(t.stride() != s for t, s in zip(tensors, call.strides)):
            return False
        key = weights.fingerprint([tensors[i] for i in native.weight_arguments], native.frozen)
        return not native.weight_arguments or key is not None

    def argument_rows(self, args: tuple[Any, ...], call: Call | SymbolicCall) -> ctypes.Array:
        """What the arguments must be, in memory; `kept` must be a list by now."""
        native, steps = self.native, self.steps
        place = {argument: slot for slot, argument in enumerate(native.input_arguments)}
        weight_place = {a: len(native.input_arguments) + i for i, a in enumerate(native.weight_arguments)}
        unused = len(self.buffers) - 1  # a slot that nobody reads, for arguments that the program does not use
        words: list[int] = []
        followed: list[tuple[int, int]] = []  # the value of an int, and the number of a word that is it
        for i, arg in enumerate(args):
            if i >= native.signature.tensors:
                words += [INT, arg, 0, 0, 0, unused]
                value = ctypes.c_int64(arg)
                self.kept.append(value)
                if i in place:
                    self.buffers[place[i]] = ctypes.addressof(value)
                if steps is not None:
                    symbol = native.part.order.index(native.part.symbols[i - native.signature.tensors])
                    steps.put(symbol, ctypes.addressof(value))
                    followed.append((symbol, len(words) - ARGUMENT_WORDS + 1))
            elif i in weight_place and native.has_init:
                words += [WEIGHT, id(arg), arg.data_ptr(), 0 if native.frozen else arg._version, 0, weight_place[i]]
            else:
                slot = place.get(i, weight_place.get(i, unused))
                size, stride = self._numbers(call.sizes[i]), self._numbers(call.strides[i])
                words += [TENSOR, arg.dim(), size, stride, 0, slot]
                if steps is not None:
                    for d in call.sizes[i]:
                        steps.check(steps.value(1), steps.value(d))  # tensors of nothing are for Python
        rows = entry.rows(words, ARGUMENT_WORDS)
        if steps is not None:
            for symbol, word in followed:
                steps.put(symbol, ctypes.addressof(rows) + 8 * word)
        return rows

    def output_rows(self, call: Call | SymbolicCall) -> ctypes.Array:
        """What results to allocate, in memory, in their order."""
        words: list[int] = []
        for i in call.order:
            size, stride, dtype = call.buffers[i]
            code = self.support.dtype_codes[dtype]
            words += [len(size), self._numbers(size), self._numbers(stride), code, self.first_output + i]
        return entry.rows(words, OUTPUT_WORDS)

    def _numbers(self, values: Sequence[Dim]) -> int:
        if self.steps is not None:
            return self.steps.numbers(values)
        array = entry.rows(cast("Sequence[int]", values), 1)
        self.kept.append(array)
        return ctypes.addressof(array)


class _CpuTable(Table):
    """One call of a part on the CPU."""

    native: Native

    def __init__(self, native: Native, support: Support):
        super().__init__(native, support)
        count = self.first_output + len(native.program.plan["buffers"])
        self.buffers = (ctypes.c_int64 * (count + 2))()
        self.set(
            main=native.program.main_address,
            buffers=ctypes.addressof(self.buffers),
            shared=ctypes.addressof(SHARED.cells),
            arena_buffer=count,
        )

    def now(self, args: tuple[Any, ...], call: Call) -> tuple[Any, ...]:
        """And the context, and whether half of the arena is enough."""
        context, threads = self.native.program.contexts.current(), torch.get_num_threads()
        return *super().now(args, call), context, threads, 2 * call.prepared.arena_bytes <= SHARED.size

    def memoise(self, args: tuple[Any, ...], call: Call) -> None:
        """Fill the table for calls like this one."""
        native = self.native
        tensors = args[: native.signature.tensors]
        constants = native.constants(list(tensors))
        context = native.program.contexts.current()
        self.begin(call.prepared.symbols)
        made = native.symbolic or call
        self.kept = [call, constants, tensors if native.weight_arguments else None, self.steps]
        arguments, outputs = self.argument_rows(args, made), self.output_rows(made)
        self.kept += [arguments, outputs]
        for i, pointer in enumerate(constants.pointers):
            self.buffers[len(native.input_arguments) + i] = pointer
        prepared = call.prepared
        dims, room = prepared.dims_address, prepared.arena_bytes
        if self.steps is not None:
            dims, room = self._follow_dims(self.steps, prepared)
        SHARED.reserve(room)
        touched = prepared.arena_bytes + sum(b.bytes for b in prepared.buffers) + sum(t.nbytes for t in tensors)
        self.set(
            **self.follow(args, call),
            context=context,
            threads=torch.get_num_threads(),
            release=int(touched > TINY or self.steps is not None),
            dims=dims,
            arguments=len(args),
            argument_table=ctypes.addressof(arguments),
            outputs=len(call.buffers),
            output_table=ctypes.addressof(outputs),
            epoch=self.clock.epoch(),
            valid=1,
        )

    def _follow_dims(self, steps: SizeSteps, prepared: Prepared) -> tuple[int, int]:
        """The address of symbols and offsets in the arena as the sizes have them, and bytes of an arena for twice these."""
        plan = self.native.program.plan
        sizes = [steps.value(dims.parse(b["bytes"])) for b in plan["arena"]]
        for size in sizes:
            steps.check(steps.value(0), size)
        lifetimes = [(b["first"], b["last"]) for b in plan["arena"]]
        offsets, total = steps.arena([steps.aligned(s, ALIGN) for s in sizes], lifetimes)
        room = max(2 * steps.values[total], SHARED.size, 1 << 20)
        steps.check(total, steps.value(room))
        words = [*range(len(prepared.symbols)), *offsets]
        array = entry.rows([steps.values[w] for w in words], 1)
        self.kept.append(array)
        for n, word in enumerate(words):
            steps.put(word, ctypes.addressof(array) + 8 * n)
        return ctypes.addressof(array), room


def prepare() -> None:
    """Begin to compile the entry."""
    entry_image(entry_ir, "native_entry")


@functools.cache
def _support() -> Support | None:
    return support(entry_ir, "native_entry", {})


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
    return Support(image, entry.method(image.address("lamina_entry")), slots, codes)


_CODED = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.bool)
_CODED += (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
_CODED += (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz)


def torch_library(name: str) -> ctypes.CDLL:
    """`libtorch_NAME`, which this process has loaded; OSError if this torch has none."""
    suffix = "dylib" if sys.platform == "darwin" else "so"
    return ctypes.CDLL(str(Path(str(torch.__file__)).parent / "lib" / f"libtorch_{name}.{suffix}"))
