"""Calls of a program on a GPU with arrays: checks, allocation, copies where an array cannot be used as it is.

Arrays that were seen before go through native code (gpu_entry.py). Everything else goes through `GpuCaller.general`,
which takes everything and explains errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from . import gpu_entry
from .arrays import ITEM_SIZE
from .errors import LaminaRuntimeError
from .gpu_array import DeviceArray, on_device
from .gpu_pending import Pending
from .gpu_program import DEVICE_ALIGN, GpuProgram
from .program import Constants, OutputSpec, Prepared
from .signature import Signature


class GpuCaller:
    """Calls a program with arrays.

    `state` names the inputs that come from a session, after the arguments: `call(stream, *arguments, *state)`.
    `launcher` is the address of the native entry, or 0; `graphs` lets it launch graphs.
    """

    def __init__(self, program: GpuProgram, state: Sequence[str], launcher: int, graphs: bool):
        self.program, self.graphs = program, graphs
        self._constants = Constants()
        plan = program.plan
        self.signature = Signature(plan, program.name)
        positions = {i["name"]: n for n, i in enumerate(plan["inputs"])}
        states = [positions[name] for name in state]
        self.given = [n for n in range(len(plan["inputs"])) if n not in states]
        self.arguments = [*self.given, *states]  # the number of the input that each argument of a call is
        self.scalars = {n for n, i in enumerate(plan["inputs"]) if i["kind"] == "scalar"}
        self._pending = Pending(program.device)
        self.changed: Callable[[], None] = lambda: None
        self.call = gpu_entry.bind(self, launcher) if launcher else self.general

    @property
    def constants(self) -> Constants:
        """The weights that calls from now on read."""
        return self._constants

    @constants.setter
    def constants(self, constants: Constants) -> None:
        self._constants = constants
        self.changed()

    def shown(self, prepared: Prepared) -> Iterator[OutputSpec]:
        """The outputs that a call returns."""
        return (o for o in prepared.outputs if o.mutates is None)

    def general(self, stream: int, *values: Any) -> Any:
        """Run with everything checked; one DeviceArray, or a tuple of them. Does not wait for the device."""
        program, device = self.program, self.program.device
        count = len(program.plan["inputs"])
        arrays: list[DeviceArray | None] = [None] * count
        shapes: list[Sequence[int]] = [()] * count
        scalars: dict[int, int] = {}
        for number, value in zip(self.arguments, values):
            if number in self.scalars:
                scalars[number] = int(value)
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
            if array is not None and program.plan["inputs"][number]["mutated"] and isinstance(value, np.ndarray):
                value[...] = array.numpy()
        results = tuple(self._result(o, arrays, buffers, stream) for o in self.shown(prepared))
        return results[0] if len(results) == 1 else results

    def _usable(self, value: Any, number: int, stream: int) -> DeviceArray:
        """An argument as an array that kernels can read: itself where it is on the device and aligned."""
        spec = self.program.plan["inputs"][number]
        array = on_device(value, spec["name"], self.program.device, stream)
        self.signature.check_dtype(number, array.dtype)
        if array.pointer % DEVICE_ALIGN and array.nbytes:
            if spec["mutated"]:
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
        device, plan = self.program.device, self.program.plan
        if o.space in ("weight", "persistent"):
            number = o.index + (len(plan["weights"]) if o.space == "persistent" else 0)
            pointer, owner = self.constants.pointers[number], self.constants
        else:
            base = (buffers if o.space == "output" else inputs)[o.index]
            assert base is not None
            pointer, owner = base.pointer, base
        view = DeviceArray(device, pointer + o.offset * ITEM_SIZE[o.dtype], o.shape, o.dtype, owner, stream)
        step = 1
        for size, stride in zip(reversed(o.shape), reversed(o.strides)):
            if size != 1 and stride != step and 0 not in o.shape:
                return _in_order(view, o, stream)
            step *= size
        return view.copy()


def _in_order(view: DeviceArray, o: OutputSpec, stream: int) -> DeviceArray:
    """A result that is a strided view: put in order through host memory."""
    extent = 1 + sum((n - 1) * s for n, s in zip(o.shape, o.strides))
    flat = DeviceArray(view.device, view.pointer, (extent,), o.dtype, view, stream).numpy()
    strides = [s * flat.itemsize for s in o.strides]
    return DeviceArray.of(view.device, np.lib.stride_tricks.as_strided(flat, o.shape, strides), stream)
