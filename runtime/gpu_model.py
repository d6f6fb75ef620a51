"""Artifacts on a GPU: `lamina.load("model.lamina", device="cuda:0")`, or `"hip:0"`. Only the GPU's driver is needed.

    y = model(x)                     # x: a numpy array, which is copied, or an array on the device, which is not
    np.asarray(y), torch.from_dlpack(y)

Results are `DeviceArray`s. Work goes to the default stream, or to the one given as `stream=`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from . import cuda, hip
from .artifact import Artifact
from .caller import Session, replaced_weights
from .errors import LaminaRuntimeError
from .gpu_array import DeviceArray
from .gpu_call import GpuCaller
from .gpu_device import Device
from .gpu_program import GpuProgram
from .gpu_table import ENTRY
from .loader import Image


def parse_device(text: str) -> Device:
    """The device that `cuda`, `cuda:1` or `hip:0` names."""
    kind, _, number = text.partition(":")
    if kind not in ("cuda", "hip") or not (number.isdigit() or not number):
        raise LaminaRuntimeError(f"device '{text}' is not supported; devices: cpu, cuda, cuda:N, hip, hip:N")
    return (cuda if kind == "cuda" else hip).device(int(number or 0))


def launcher(artifact: Artifact) -> Image | None:
    """The code by which this host launches the artifact's programs on GPUs; None: it has none for it."""
    found = artifact.host_launcher()
    if found is None:
        return None
    image = Image(found, "launcher")
    try:
        image.address(ENTRY)
    except LaminaRuntimeError:
        return None  # its table is of another version
    return image


class GpuModel:
    """A loaded entry point on a GPU. With `graphs`, several launches of static sizes are one of the driver's graphs."""

    def __init__(self, artifact: Artifact, entry: str, device: Device, target: str | None = None, graphs: bool = False):
        self.artifact, self.entry, self.device = artifact, entry, device
        self.target = artifact.choose(entry, target, device)
        self.program = GpuProgram(*artifact.program(entry, self.target), device=device, name=entry)
        self.plan = self.program.plan
        self._state = artifact.state(entry)
        self._image = launcher(artifact)
        address = self._image.address(ENTRY) if self._image else 0
        self._caller = GpuCaller(self.program, tuple(self._state), address, graphs)
        self.inputs = self._caller.names
        self.outputs = tuple(o["name"] for o in self.plan["outputs"] if o["mutates"] is None)
        self._weights: dict[str, np.ndarray] = {}
        self._lock = threading.Lock()
        self.swap_weights({})

    def __repr__(self) -> str:
        return f"<lamina {self._caller} for {self.target} on {self.device.kind}:{self.device.index}>"

    def swap_weights(self, weights: Mapping[str, Any]) -> None:
        """Replace weights by name and compute again what depends on them."""
        specs = {w["name"]: w for w in self.plan["weights"]}
        with self._lock:
            arrays = replaced_weights(self._weights, specs, weights)
            owners = []
            for name in specs:
                data = arrays.get(name)
                raw = self.artifact.weight_bytes(name) if data is None else data.reshape(-1).view(np.uint8)
                owners.append(DeviceArray.of(self.device, raw.reshape(-1), 0))
            constants = self.program.initialize([o.pointer for o in owners], owners)
            self._weights, self._caller.constants = arrays, constants
            self.device.synchronize()

    def session(self) -> Session:
        """A copy of the state that calls through it read and write."""
        return Session(self, self._state)

    def initial_state(self) -> list[DeviceArray]:
        """The initial values of the inputs that are state, on the device."""
        return [DeviceArray.of(self.device, self.artifact.weight(n), 0) for n in self._state.values()]

    def __call__(self, *args: Any, stream: int = 0, **named: Any) -> Any:
        """Run; returns one DeviceArray, or a tuple of them. Does not wait for the device."""
        return self.run(self.initial_state(), *args, stream=stream, **named)

    def run(self, state: Iterable[DeviceArray], /, *args: Any, stream: int = 0, **named: Any) -> Any:
        """Run on arrays and a state, which is updated."""
        if named or len(args) != len(self.inputs):
            args = self._caller.order(args, named, called=repr(self))
        return self._caller.call(stream, *args, *state)
