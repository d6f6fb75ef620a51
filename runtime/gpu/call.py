"""Calls of a program on a GPU with arrays: checks, allocation, copies where an array cannot be used as it is.

What was seen before is called by native code (entry.py); `GpuCaller.general` takes everything and explains errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays import ITEM_SIZE, is_row_major
from ..caller import ProgramCaller
from ..errors import LaminaRuntimeError
from ..program import OutputSpec
from . import entry
from .array import DeviceArray, on_device
from .pending import Pending
from .program import DEVICE_ALIGN, GpuProgram

if TYPE_CHECKING:
    from ..loader import Image


class GpuCaller(ProgramCaller):
    """Calls a program with arrays: `call(stream, *arguments, *state)`.

    `launcher` has the native entry; `graphs` lets it launch graphs.
    """

    def __init__(self, program: GpuProgram, state: Sequence[str], launcher: Image | None, graphs: bool):
        super().__init__(program.plan, program.name, state)
        self.program, self.graphs = program, graphs
        self._pending = Pending(program.device)
        self.call = entry.bind(self, launcher) if launcher else self.general

    def general(self, stream: int, *values: Any) -> Any:
        """Run, all checked, without waiting for the device; one DeviceArray, or a tuple of them."""
        with self.program.device.use():  # torch gives arrays of its current device only
            return self._general(stream, values)

    def _general(self, stream: int, values: Sequence[Any]) -> Any:
        program, device = self.program, self.program.device
        count = len(program.plan["inputs"])
        arrays: list[DeviceArray | None] = [None] * count
        shapes: list[Sequence[int]] = [()] * count
        scalars: dict[int, int] = {}
        for number, value in zip(self.arguments, values):
            if number in self.scalars:
                scalars[number] = self.scalar(number, value)
                continue
            array = arrays[number] = self._usable(value, number, stream)
            shapes[number] = array.shape
        prepared = program.prepare(self.signature.bind(shapes, scalars))
        buffers = [DeviceArray.empty(device, b.shape, b.dtype, stream) for b in prepared.buffers]
        inputs = [a.pointer if a else 0 for a in arrays]
        self._pending.drop()
        program.run(prepared, inputs, [b.pointer for b in buffers], self.constants, stream=stream)
        foreign = [a for a in arrays if a is not None and not a.is_freed_after(stream)]
        if foreign:
            self._pending.keep(foreign, stream)
        for number, value in zip(self.arguments, values):
            array = arrays[number]
            if array is not None and number in self.mutated and isinstance(value, np.ndarray):
                value[...] = array.numpy()
        results = tuple(self._result(o, arrays, buffers, stream) for o in self.shown(prepared))
        return results[0] if len(results) == 1 else results

    def _usable(self, value: Any, number: int, stream: int) -> DeviceArray:
        """An argument as an array that kernels can read: itself where it is on the device and aligned."""
        spec = self.program.plan["inputs"][number]
        array = on_device(value, spec["name"], self.program.device, stream)
        self.signature.check_dtype(number, array.dtype)
        if array.pointer % DEVICE_ALIGN and array.nbytes:
            if number in self.mutated:
                raise LaminaRuntimeError(
                    f"input '{spec['name']}' is written to and must be aligned to {DEVICE_ALIGN} bytes"
                )
            array = array.copy()
        return array

    def _result(
        self, o: OutputSpec, inputs: Sequence[DeviceArray | None], buffers: Sequence[DeviceArray], stream: int
    ) -> DeviceArray:
        if o.whole:
            return buffers[o.index]
        device = self.program.device
        if o.space in ("weight", "persistent"):
            pointer, owner = self.constant_pointer(o), self.constants
        else:
            base = (buffers if o.space == "output" else inputs)[o.index]
            assert base is not None
            pointer, owner = base.pointer, base
        view = DeviceArray(device, pointer + o.offset * ITEM_SIZE[o.dtype], o.shape, o.dtype, owner, stream)
        return view.copy() if is_row_major(o.shape, o.strides) else _in_order(view, o, stream)


def _in_order(view: DeviceArray, o: OutputSpec, stream: int) -> DeviceArray:
    """A result that is a strided view: put in order through host memory."""
    extent = 1 + sum((n - 1) * s for n, s in zip(o.shape, o.strides))
    flat = DeviceArray(view.device, view.pointer, (extent,), o.dtype, view, stream).numpy()
    strides = [s * flat.itemsize for s in o.strides]
    return DeviceArray.of(view.device, np.lib.stride_tricks.as_strided(flat, o.shape, strides), stream)
