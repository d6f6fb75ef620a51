"""A compiled part as a CPython builtin: the tables behind `entry_code`, filled in Python, read by native code.

`bind(native, …)` gives a callable that means the same as `native` and costs under a microsecond for sizes that it has
seen and weights that have not changed since. Anything else goes through the slow path, which calls `native` and memoises
anew (runtime/entry.py). It returns None where something is missing (a torch with another layout): `native` is called then.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

import torch

from ...dialects import dims
from ...runtime import entry
from ...runtime.arena import ALIGN
from ...runtime.entry import SHARED, TINY
from ...runtime.program import Prepared
from .entry_code import entry_ir
from .entry_image import entry_image
from .entry_support import Support, support
from .launcher import Call, Native, eager_error
from .part_table import PartEntry, PartTable
from .size_steps import SizeSteps


def bind(native: Native) -> Callable[..., Any] | None:
    """The builtin for `native`, or None."""
    support = _support()
    if support is None or native.program.contexts.hook:
        return None
    return PartEntry(native, support, lambda: _CpuTable(native, support)).chain.call


class _CpuTable(PartTable):
    """One call of a part on the CPU."""

    native: Native

    def __init__(self, native: Native, support: Support):
        super().__init__(native, support, self._fail)
        count = self.first_output + len(native.program.plan["buffers"])
        self.buffers = (ctypes.c_int64 * (count + 2))()
        self.set(
            main=native.program.main_address,
            buffers=ctypes.addressof(self.buffers),
            shared=ctypes.addressof(SHARED.cells),
            arena_buffer=count,
        )

    def _fail(self, status: int) -> Any:
        raise eager_error(self.native.program.failure(status))

    def now(self, args: tuple[Any, ...], call: Call) -> tuple[Any, ...]:
        """And the context, and whether half of the arena is enough."""
        context, threads = self.native.program.contexts.current(), torch.get_num_threads()
        return *super().now(args, call), context, threads, 2 * call.prepared.arena_bytes <= SHARED.size

    def memoise(self, args: tuple[Any, ...], call: Call, symbols: tuple[int, ...]) -> None:
        """Fill the table for calls like this one."""
        native = self.native
        tensors = args[: native.signature.tensors]
        constants = native.constants(list(tensors))
        context = native.program.contexts.current()
        self.begin(symbols)
        rows = self.rows(args, call, constants)
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
            **rows,
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
