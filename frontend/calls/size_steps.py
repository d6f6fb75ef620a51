"""Sizes that native code computes: steps that turn the symbols of a call into the words of an entry's table.

A table is filled for one tuple of sizes. `SizeSteps` says, besides, how each word that depends on the sizes follows from the
symbols, so that a call of other sizes costs neither Python nor a table of its own (`compiler/native/size_steps_ir.py` runs them):

    steps = SizeSteps(("s0", "s1"), (2, 17))     # the symbols, and their values in the call that fills the table
    groups = steps.value(dims.parse("floordiv(2*s0 + 255, 256)"))     # its index among the values
    steps.check(steps.value(1), groups)          # 1 <= groups, or the call takes the slow path
    steps.put(groups, address)                   # the word at `address` is its value
    table.set(**steps.words([(0, 0), (0, 1)]))   # where the symbols are: argument and dim

Values are symbols, constants and results of steps, in one array; equal ones are one. All is computed and checked before
anything is put.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from typing import Any

from ...compiler.native.size_steps_ir import (
    ADD,
    CHECK,
    ENCODE,
    FLOORDIV,
    MAX,
    MIN,
    MOD,
    MUL,
    PUT,
    PUT_HALF,
    STEP_WORDS,
    SYMBOL_WORDS,
)
from ...dialects import dims
from ...dialects.dim_fold import fold
from ...dialects.dims import Dim
from ...runtime.arena import plan_offsets
from ...runtime.entry import rows

_COMPUTED: dict[int, Callable[[int, int], int]] = {
    ADD: lambda a, b: a + b,
    MUL: lambda a, b: a * b,
    FLOORDIV: lambda a, b: a // (b or 1),
    MOD: lambda a, b: a % (b or 1),
    MIN: min,
    MAX: max,
}
_FUNCTIONS = {"floordiv": FLOORDIV, "mod": MOD, "min": MIN, "max": MAX}


class SizeSteps:
    """Steps over the values of `symbols`, which are `now` in this call; `follow_now` is 1 when the table is filled."""

    def __init__(self, symbols: Sequence[str], now: Sequence[int]):
        self.symbols = list(symbols)
        self.values = list(now)  # in this call
        self._dims: dict[Dim, int] = {dims.symbol(name): i for i, name in enumerate(symbols)}
        self._steps: dict[tuple[int, int, int], int] = {}
        self._checks: list[tuple[int, int, int, int]] = []
        self._puts: list[tuple[int, int, int, int]] = []
        self._encodes: list[tuple[int, int, int, int]] = []
        self._kept: list[Any] = []

    def value(self, dim: Dim) -> int:
        """The index of the value of `dim`."""
        found = self._dims.get(dim)
        if found is None:
            found = self._dims[dim] = self._new(dim) if isinstance(dim, int) else self._computed(dim)
        return found

    def apply(self, operation: int, a: int, b: int) -> int:
        """The index of the result of `operation` on the values with indices `a` and `b`."""
        key = operation, a, b
        if key not in self._steps:
            self._steps[key] = self._new(_COMPUTED[operation](self.values[a], self.values[b]))
        return self._steps[key]

    def check(self, low: int, high: int) -> None:
        """A call where value `low` is more than value `high` takes the slow path."""
        self._checks.append((CHECK, low, high, 0))

    def put(self, value: int, address: int, half: bool = False) -> None:
        """The word at `address`, with `half` of 4 bytes, is that value."""
        self._puts.append((PUT_HALF if half else PUT, value, address, 0))

    def encode(self, used: int, record: Sequence[int]) -> None:
        """After all words are put, the tensor map of `record` (`ENCODE`'s words) is made again, unless value `used` is 0."""
        row = rows(record, 0)
        self._kept.append(row)
        self._encodes.append((ENCODE, used, ctypes.addressof(row), 0))

    def numbers(self, given: Sequence[Dim]) -> int:
        """The address of an array of 8-byte numbers that are the values of `given`."""
        indices = [self.value(d) for d in given]
        array = rows([self.values[i] for i in indices], 1)
        self._kept.append(array)
        for n, (index, dim) in enumerate(zip(indices, given)):
            if not isinstance(dim, int):
                self.put(index, ctypes.addressof(array) + 8 * n)
        return ctypes.addressof(array)

    def integers(self, given: Sequence[int]) -> int:
        """The address of an array of 4-byte numbers, which no size changes."""
        array = (ctypes.c_int * len(given))(*given)
        self._kept.append(array)
        return ctypes.addressof(array)

    def aligned(self, size: int, to: int) -> int:
        """The index of value `size` rounded up to a multiple of `to`."""
        units = self.apply(FLOORDIV, self.apply(ADD, size, self.value(to - 1)), self.value(to))
        return self.apply(MUL, units, self.value(to))

    def arena(self, sizes: Sequence[int], lifetimes: Sequence[tuple[int, int]]) -> tuple[list[int], int]:
        """Indices of the offsets of buffers with the sizes at those indices, and of the bytes in all.

        Buffers lie in the order that `plan_offsets` finds best for the sizes now, whatever their sizes are: each begins
        where the last one ends of those below it that live at one time with it.
        """
        zero = self.value(0)
        offsets, _ = plan_offsets([max(self.values[s], 1) for s in sizes], lifetimes)
        found, below, total = [zero] * len(sizes), list[int](), zero
        implied: dict[int, set[int]] = {}
        for buffer in sorted(range(len(sizes)), key=lambda b: offsets[b]):
            first, last = lifetimes[buffer]
            under = [b for b in below if lifetimes[b][0] <= last and first <= lifetimes[b][1]]
            implied[buffer] = set(under).union(*(implied[b] for b in under))
            for b in under:
                if not any(b in implied[c] for c in under):
                    found[buffer] = self.apply(MAX, found[buffer], self.apply(ADD, found[b], sizes[b]))
            below.append(buffer)
            total = self.apply(MAX, total, self.apply(ADD, found[buffer], sizes[buffer]))
        return found, total

    def words(self, sources: Sequence[tuple[int, int]]) -> dict[str, int]:
        """The slots of a table; `sources` are the argument and dim of each symbol. This object keeps them alive."""
        computed = [(*key, to) for key, to in self._steps.items()]
        steps = [*computed, *self._checks, *self._puts, *self._encodes]
        tables = {
            "follow_rows": rows([n for source in sources for n in source], SYMBOL_WORDS),
            "follow_values": rows(self.values, 1),
            "follow_step_table": rows([n for step in steps for n in step], STEP_WORDS),
        }
        self._kept.append(tables)
        addresses = {name: ctypes.addressof(table) for name, table in tables.items()}
        return {**addresses, "follow_symbols": len(self.symbols), "follow_steps": len(steps), "follow_now": 1}

    def _new(self, value: int) -> int:
        self.values.append(value)
        return len(self.values) - 1

    def _computed(self, dim: dims.Expr) -> int:
        def leaf(x: int | str) -> int:
            return self.value(x if isinstance(x, int) else dims.symbol(x))

        def function(name: str, a: Dim, b: Dim) -> int:
            return self.apply(_FUNCTIONS[name], self.value(a), self.value(b))

        add, multiply = functools.partial(self.apply, ADD), functools.partial(self.apply, MUL)
        return fold(dim, leaf, function, add, multiply)
