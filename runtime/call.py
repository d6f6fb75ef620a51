"""Calls with arrays: checks, output allocation, copies where an array cannot be used as it is, and the native call.

What was seen before is called by native code (array_entry.py); `Caller.general` takes everything and explains errors.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from numpy import empty, ndarray

from . import array_entry
from .arrays import ITEM_SIZE, as_array, as_stored, dtype_name, numpy_dtype, pointer
from .caller import ProgramCaller
from .errors import LaminaRuntimeError
from .program import LoadedProgram, OutputSpec, Prepared


class Caller(ProgramCaller):
    """Calls a program with numpy arrays: `call(out, *arguments, *state)`."""

    def __init__(self, program: LoadedProgram, state: Sequence[str] = (), threads: int | None = None):
        plan = program.plan
        super().__init__(plan, program.name, state)
        self.program, self.threads = program, threads
        self.dtypes = [numpy_dtype(i["dtype"]) for i in plan["inputs"]]
        constant = (*plan["weights"], *plan["persistent"])
        self.constant_bytes = sum(prod(c["shape"]) * ITEM_SIZE[c["dtype"]] for c in constant)
        self.call = array_entry.bind(self)

    def general(self, out: Any, *inputs: Any) -> Any:
        """Run with everything checked, and copied where it must be; `out` is None or takes the results."""
        given, scalars = self._convert(inputs)
        symbols = self.signature.bind([a.shape for a in given], scalars)
        prepared = self.program.prepare(symbols)
        used = self._usable(given)
        outs = self._outs(out, prepared)
        buffers: list[ndarray] = []
        for n, spec in enumerate(prepared.buffers):
            place = next((outs[k] for k, o in enumerate(self.shown(prepared)) if o.whole and o.index == n), None)
            if place is None or not place.flags.c_contiguous or any(np.may_share_memory(place, a) for a in used):
                place = empty(spec.shape, numpy_dtype(spec.dtype))
            buffers.append(place)
        outputs = [pointer(b) for b in buffers]
        self.program.run(prepared, [pointer(a) for a in used], outputs, self.constants, self.threads)
        for n in self.mutated:
            if used[n] is not given[n]:
                given[n][...] = used[n]
        results = []
        for o, wanted in zip(self.shown(prepared), outs):
            result = self._result(o, used, buffers)
            if wanted is not None and wanted is not result:
                wanted[...] = result
                result = wanted
            results.append(result)
        return results[0] if len(results) == 1 else tuple(results)

    def _convert(self, inputs: Sequence[Any]) -> tuple[list[ndarray], dict[int, int]]:
        """All inputs as arrays of the right element types, and the values of the scalar ones."""
        if len(inputs) != len(self.arguments):
            count = len(inputs) - (len(self.arguments) - len(self._given))
            raise LaminaRuntimeError(f"got {count} inputs, expected {len(self._given)}: {self}")
        arrays: list[ndarray] = [None] * len(self.signature.inputs)  # type: ignore[list-item]
        scalars: dict[int, int] = {}
        for n, value in zip(self.arguments, inputs):
            if n in self.scalars:
                scalars[n] = self.scalar(n, value)
                arrays[n] = np.array(scalars[n], np.int64)
                continue
            name = self.signature.inputs[n]["name"]
            arrays[n] = as_array(value, name)
            if arrays[n].dtype != self.dtypes[n]:
                self.signature.check_dtype(n, dtype_name(arrays[n].dtype))
                arrays[n] = as_stored(arrays[n])
                if n in self.mutated and arrays[n].dtype != self.dtypes[n]:
                    raise LaminaRuntimeError(f"input '{name}' is written to and must have native byte order")
            if n in self.mutated and not arrays[n].flags.writeable:
                raise LaminaRuntimeError(f"input '{name}' is written to, but the array is read-only; pass a copy")
        return arrays, scalars

    def _usable(self, given: Sequence[ndarray]) -> list[ndarray]:
        """The arrays that native code reads and writes: contiguous, aligned, and apart from those that are written."""
        used = []
        for n, a in enumerate(given):
            if not (a.flags.c_contiguous and a.flags.aligned) or a.dtype != self.dtypes[n]:
                a = np.array(a, self.dtypes[n], order="C")
            elif any(m != n and np.may_share_memory(a, given[m]) for m in self.mutated):
                a = a.copy()
            used.append(a)
        return used

    def _outs(self, out: Any, prepared: Prepared) -> list[ndarray | None]:
        """The caller's arrays for the results, checked."""
        shown = self.shown(prepared)
        if out is None:
            return [None] * len(shown)
        outs: list[ndarray | None] = [out] if isinstance(out, ndarray) else list(out)
        outs = [as_stored(a) if isinstance(a, ndarray) else a for a in outs]
        if len(outs) != len(shown):
            raise LaminaRuntimeError(f"out has {len(outs)} arrays, '{self.program.name}' has {len(shown)} results")
        for a, o in zip(outs, shown):
            if not isinstance(a, ndarray) or not a.flags.writeable:
                raise LaminaRuntimeError(f"out for '{o.name}' is no writeable numpy array")
            if a.shape != o.shape or a.dtype != numpy_dtype(o.dtype):
                raise LaminaRuntimeError(
                    f"out for '{o.name}' is {dtype_name(a.dtype)}{list(a.shape)}, expected {o.dtype}{list(o.shape)}"
                )
        return outs

    def _result(self, o: OutputSpec, inputs: Sequence[ndarray], buffers: Sequence[ndarray]) -> ndarray:
        if o.whole:
            return buffers[o.index]
        dtype = numpy_dtype(o.dtype)
        strides = [s * dtype.itemsize for s in o.strides]
        if o.space in ("weight", "persistent"):
            size = 1 + sum((d - 1) * s for d, s in zip(o.shape, o.strides)) if 0 not in o.shape else 0
            address = self.constant_pointer(o) + o.offset * dtype.itemsize
            memory: Any = (ctypes.c_char * (size * dtype.itemsize)).from_address(address)
            # a copy: the memory of weights may be read-only, and is shared by all calls
            return ndarray(o.shape, dtype, memory, 0, strides).copy()
        base = (buffers if o.space == "output" else inputs)[o.index]
        if 0 in o.shape:
            return empty(o.shape, dtype)
        return ndarray(o.shape, dtype, base, o.offset * dtype.itemsize, strides)
