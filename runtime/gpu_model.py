"""Artifacts on a GPU: `lamina.load("model.lamina", device="cuda:0")`, or `"hip:0"`. Only the GPU's driver is needed.

    y = model(x)                     # x: a numpy array, which is copied, or an array on the device, which is not
    np.asarray(y), torch.from_dlpack(y)

Results are `DeviceArray`s. Work goes to the default stream, or to the one given as `stream=`.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from . import cuda, dlpack, hip
from .arrays import ITEM_SIZE, as_array, dtype_name, numpy_dtype
from .artifact import Artifact
from .errors import ArtifactError, LaminaRuntimeError
from .gpu_device import Device
from .gpu_program import DEVICE_ALIGN, GpuProgram
from .program import Constants, OutputSpec
from .signature import Signature


class DeviceArray:
    """A contiguous array on a GPU, for anything that speaks DLPack, the CUDA array interface or numpy."""

    def __init__(self, device: Device, pointer: int, shape: Sequence[int], dtype: str, owner: Any, stream: int):
        self.device, self.pointer, self.shape, self.dtype = device, pointer, tuple(shape), dtype
        self._owner, self.stream = owner, stream

    @staticmethod
    def empty(device: Device, shape: Sequence[int], dtype: str, stream: int) -> DeviceArray:
        """Uninitialised memory."""
        memory = device.allocate(prod(shape) * ITEM_SIZE[dtype], stream)
        return DeviceArray(device, memory.pointer, shape, dtype, memory, stream)

    @staticmethod
    def of(device: Device, array: np.ndarray, stream: int) -> DeviceArray:
        """A copy of a numpy array."""
        source = np.ascontiguousarray(array)
        made = DeviceArray.empty(device, array.shape, dtype_name(array.dtype), stream)
        device.copy(made.pointer, source.__array_interface__["data"][0], source.nbytes, stream)
        device.synchronize(stream)  # the source may go away
        return made

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return prod(self.shape) * ITEM_SIZE[self.dtype]

    def __repr__(self) -> str:
        return f"<{self.dtype}{list(self.shape)} on {self.device.kind}:{self.device.index}>"

    def copy(self) -> DeviceArray:
        """A copy on the device."""
        made = DeviceArray.empty(self.device, self.shape, self.dtype, self.stream)
        self.device.copy(made.pointer, self.pointer, self.nbytes, self.stream)
        return made

    def numpy(self) -> np.ndarray:
        """A copy in host memory; waits for the device."""
        made = np.empty(self.shape, numpy_dtype(self.dtype))
        self.device.use()
        self.device.copy(made.__array_interface__["data"][0], self.pointer, self.nbytes, self.stream)
        self.device.synchronize(self.stream)
        return made

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        made = self.numpy()
        return made if dtype is None else made.astype(dtype)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self.dtype == "bf16":
            raise AttributeError("the CUDA array interface has no bf16; use DLPack")
        typestr = numpy_dtype(self.dtype).str
        return {"shape": self.shape, "typestr": typestr, "data": (self.pointer, False), "version": 3, "stream": self.stream or 1}  # fmt: skip

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device.dlpack, self.device.index

    def __dlpack__(self, *, stream: Any = None, **unused: Any) -> Any:
        if stream not in (None, -1) and (stream or 1) != (self.stream or 1):
            self.device.synchronize(self.stream)
        return dlpack.give(self.pointer, self.shape, self.dtype, self.device.index, self, self.device.dlpack)


def parse_device(text: str) -> Device:
    """The device that `cuda`, `cuda:1` or `hip:0` names."""
    kind, _, number = text.partition(":")
    if kind not in ("cuda", "hip") or not (number.isdigit() or not number):
        raise LaminaRuntimeError(f"device '{text}' is not supported; devices: cpu, cuda, cuda:N, hip, hip:N")
    return (cuda if kind == "cuda" else hip).device(int(number or 0))


def choose(artifact: Artifact, entry: str, device: Device, target: str | None) -> str:
    """The artifact's best target for `device`; ArtifactError says why there is none."""
    programs = artifact.manifest["entries"].get(entry, {"programs": {}})["programs"]
    if target is not None and target not in artifact.targets(entry):
        raise ArtifactError(f"{artifact.path} has no code for '{target}'; it has {', '.join(programs)}")
    gpu = [t for t, p in programs.items() if p["arch"] == device.arch and target in (None, t)]
    if not gpu:
        have = ", ".join(artifact.targets(entry))
        example = {"cuda": "sm_90a", "hip": "gfx942"}[device.kind]
        raise ArtifactError(
            f"{artifact.path} has no code for {device}; it has {have}: compile it with --target {example}, say"
        )
    fitting, reasons = [], []
    for name in gpu:
        try:
            device.require(name)
            fitting.append(name)
        except LaminaRuntimeError as error:
            reasons.append(str(error))
    if not fitting:
        raise ArtifactError(f"{artifact.path}: {'; '.join(reasons)}")
    return max(fitting, key=device.preference)


class GpuModel:
    """A loaded entry point on a GPU."""

    def __init__(self, artifact: Artifact, entry: str, device: Device, target: str | None = None):
        self.artifact, self.entry, self.device = artifact, entry, device
        self.target = choose(artifact, entry, device, target)
        self.program = GpuProgram(*artifact.program(entry, self.target), device=device, name=entry)
        self.plan = self.program.plan
        self._state = artifact.state(entry)
        self._signature = Signature(self.plan, entry)
        names = [i["name"] for i in self.plan["inputs"]]
        self._arguments = [n for n, name in enumerate(names) if name not in self._state]
        self.inputs = tuple(names[n] for n in self._arguments)
        self.outputs = tuple(o["name"] for o in self.plan["outputs"] if o["mutates"] is None)
        self._weights: dict[str, np.ndarray] = {}
        self._lock = threading.Lock()
        self._constants: Constants
        self.swap_weights({})

    def __repr__(self) -> str:
        described = ", ".join(map(self._signature.describe, self._arguments))
        return f"<lamina {self.entry}({described}) for {self.target} on {self.device.kind}:{self.device.index}>"

    def swap_weights(self, weights: Mapping[str, Any]) -> None:
        """Replace weights by name and compute again what depends on them."""
        specs = {w["name"]: w for w in self.plan["weights"]}
        with self._lock:
            for name, value in weights.items():
                if name not in specs:
                    raise LaminaRuntimeError(f"there is no weight '{name}'; weights: {', '.join(specs) or 'none'}")
                array = as_array(value, name)
                if dtype_name(array.dtype) != specs[name]["dtype"] or list(array.shape) != specs[name]["shape"]:
                    raise LaminaRuntimeError(f"weight '{name}' must be {specs[name]['dtype']}{specs[name]['shape']}")
                self._weights[name] = array
            owners = []
            for name in specs:
                data = self._weights.get(name)
                raw = self.artifact.weight_bytes(name) if data is None else np.ascontiguousarray(data).view(np.uint8)
                owners.append(DeviceArray.of(self.device, raw.reshape(-1), 0))
            self._constants = self.program.initialize([o.pointer for o in owners], owners)
            self.device.synchronize()

    def session(self) -> GpuSession:
        """A copy of the state that calls through it read and write."""
        return GpuSession(self)

    def initial_state(self) -> list[DeviceArray]:
        """The initial values of the inputs that are state, on the device."""
        return [DeviceArray.of(self.device, self.artifact.weight(n), 0) for n in self._state.values()]

    def __call__(self, *args: Any, stream: int = 0, **named: Any) -> Any:
        """Run; returns one DeviceArray, or a tuple of them. Does not wait for the device."""
        return self.run(args, named, self.initial_state(), stream)

    def run(self, args: Sequence[Any], named: Mapping[str, Any], state: Sequence[DeviceArray], stream: int) -> Any:
        """Run on arrays and a state, which is updated."""
        rest = self.inputs[len(args) :]
        if len(args) > len(self.inputs) or set(named) != set(rest):
            raise LaminaRuntimeError(f"inputs are {', '.join(self.inputs)}; got {len(args)} and {', '.join(named)}")
        given: dict[str, Any] = {**dict(zip(self.inputs, args)), **named, **dict(zip(self._state, state))}
        arrays: list[DeviceArray | None] = []
        shapes, scalars, originals = [], {}, []
        for number, spec in enumerate(self.plan["inputs"]):
            value = given[spec["name"]]
            if spec["kind"] == "scalar":
                scalars[number] = int(value)
                arrays.append(None)
                shapes.append(())
                continue
            array = self._on_device(value, spec, number, stream)
            shapes.append(array.shape)
            arrays.append(array)
            if spec["mutated"] and array is not value:
                originals.append((array, value))
        prepared = self.program.prepare(self._signature.bind(shapes, scalars))
        buffers = [DeviceArray.empty(self.device, b.shape, b.dtype, stream) for b in prepared.buffers]
        inputs = [a.pointer if a else 0 for a in arrays]
        self.program.run(prepared, inputs, [b.pointer for b in buffers], self._constants, stream=stream)
        for array, value in originals:
            if isinstance(value, np.ndarray):
                value[...] = array.numpy()
        shown = [o for o in prepared.outputs if o.mutates is None]
        results = tuple(self._result(o, arrays, buffers, stream) for o in shown)
        return results[0] if len(results) == 1 else results

    def _on_device(self, value: Any, spec: Mapping[str, Any], number: int, stream: int) -> DeviceArray:
        """An input as an array that kernels can read: itself where it is on the device and aligned."""
        name = spec["name"]
        if isinstance(value, DeviceArray):
            array = value
        elif hasattr(value, "__dlpack_device__") and value.__dlpack_device__()[0] == self.device.dlpack:
            pointer, shape, dtype, owner = dlpack.take(value, self.device.index, stream, name, self.device.dlpack)
            array = DeviceArray(self.device, pointer, shape, dtype, owner, stream)
        else:
            array = DeviceArray.of(self.device, as_array(value, name), stream)
        self._signature.check_dtype(number, array.dtype)
        if array.pointer % DEVICE_ALIGN and array.nbytes:
            if spec["mutated"]:
                raise LaminaRuntimeError(f"input '{name}' is written to and must be aligned to {DEVICE_ALIGN} bytes")
            array = array.copy()
        return array

    def _result(
        self, o: OutputSpec, inputs: Sequence[DeviceArray | None], buffers: Sequence[DeviceArray], stream: int
    ) -> DeviceArray:
        if o.whole:
            return buffers[o.index]
        if o.space in ("weight", "persistent"):
            number = o.index + (len(self.plan["weights"]) if o.space == "persistent" else 0)
            pointer, owner = self._constants.pointers[number], self._constants
        else:
            base = (buffers if o.space == "output" else inputs)[o.index]
            assert base is not None
            pointer, owner = base.pointer, base
        view = DeviceArray(self.device, pointer + o.offset * ITEM_SIZE[o.dtype], o.shape, o.dtype, owner, stream)
        step = 1
        for size, stride in zip(reversed(o.shape), reversed(o.strides)):
            if size != 1 and stride != step and 0 not in o.shape:
                return self._strided(view, o, stream)
            step *= size
        return view.copy()

    def _strided(self, view: DeviceArray, o: OutputSpec, stream: int) -> DeviceArray:
        """A result that is a strided view: put in order through host memory."""
        extent = 1 + sum((n - 1) * s for n, s in zip(o.shape, o.strides))
        flat = DeviceArray(self.device, view.pointer, (extent,), o.dtype, view, stream).numpy()
        strides = [s * flat.itemsize for s in o.strides]
        return DeviceArray.of(self.device, np.lib.stride_tricks.as_strided(flat, o.shape, strides), stream)


class GpuSession:
    """A model with a state of its own on the device."""

    def __init__(self, model: GpuModel):
        self.model = model
        self.reset()

    def reset(self) -> None:
        """Go back to the initial state."""
        self.state = dict(zip(self.model._state, self.model.initial_state()))

    def __call__(self, *args: Any, stream: int = 0, **named: Any) -> Any:
        """Run on the state and update it."""
        return self.model.run(args, named, list(self.state.values()), stream)
