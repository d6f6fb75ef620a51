"""The native entry of one part: its tables, and the slow path behind them.

A table has rows of arguments and results, and the steps by which they follow sizes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Hashable, Sequence
from typing import Any, cast

import torch

from ...dialects.dims import Dim
from ...runtime import entry, threads
from ...runtime.program import Constants
from .. import weights
from .entry_support import Support
from .entry_table import ARGUMENT_WORDS, INT, OUTPUT_WORDS, SLOT, TENSOR, WEIGHT
from .launcher import Call
from .size_steps import SizeSteps
from .symbolic_call import SymbolicCall


class PartEntry:
    """The tables of one part, which `make` makes, one for each tuple of sizes, and the slow path behind them."""

    def __init__(self, native: Any, support: Support, make: Callable[[], PartTable]):
        self.native = native
        self.chain = entry.Chain(support.address, make, self.slow)

    def slow(self, *args: Any) -> tuple[torch.Tensor, ...]:
        """Call in Python, then memoise this call's sizes and weights for the native code."""
        results = self.native(*args)
        symbols = self.native.signature.symbols(args)
        call = self.native.call(symbols)
        head = self.chain.tables[0]
        assert isinstance(head, PartTable)
        if head.fits(call, args[: self.native.signature.tensors]) and not head.settled(args, call):
            self.chain.fill(head.key(symbols), lambda table: table.memoise(args, call, symbols))
        return results


class PartTable(entry.Table):
    """What tables of parts have in common: rows of arguments and results. `buffers` is the array of pointers.

    The table of a part with symbols is for calls of all sizes where it can be (`steps`), else for those of one tuple.
    """

    names = SLOT  # the table's slots
    buffers: ctypes.Array
    steps: SizeSteps | None = None
    facts: tuple[Any, ...] = ()  # `now` when the table was filled

    def __init__(self, native: Any, support: Support, failed: Callable[[int], Any] | None = None):
        super().__init__(self.names, support.slots, failed)
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

    def memoise(self, args: tuple[Any, ...], call: Call, symbols: tuple[int, ...]) -> None:
        """Fill the table for calls like this one."""
        raise NotImplementedError

    def begin(self, symbols: tuple[int, ...]) -> None:
        """Forget the steps of the call before, and begin new ones if tables are for all sizes."""
        self.steps = None
        if self.native.symbolic is not None:
            self.steps = SizeSteps([s["name"] for s in self.native.program.plan["symbols"]], symbols)

    def rows(self, args: tuple[Any, ...], call: Call, constants: Constants) -> dict[str, int]:
        """The slots by which the table is for this call, `valid` last; puts weights among `buffers`, begins `kept` anew."""
        native = self.native
        tensors = args[: native.signature.tensors] if native.weight_arguments else None
        self.kept = [call, constants, tensors, self.steps]
        laid = native.symbolic or call
        arguments, outputs = self.argument_rows(args, laid), self.output_rows(laid)
        self.kept += [arguments, outputs]
        for i, pointer in enumerate(constants.pointers):
            self.buffers[len(native.input_arguments) + i] = pointer
        return {
            "arguments": len(args),
            "argument_table": ctypes.addressof(arguments),
            "outputs": len(call.buffers),
            "output_table": ctypes.addressof(outputs),
            "epoch": self.clock.epoch(),
            "valid": 1,
        }

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
