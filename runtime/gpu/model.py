"""Artifacts on a GPU: `lamina.load("model.lamina", device="cuda:0")`, or `"hip:0"`. Only the GPU's driver is needed.

    y = model(x)                     # x: a numpy array, which is copied, or an array on the device, which is not
    np.asarray(y), torch.from_dlpack(y)

Results are `DeviceArray`s. Work goes to the default stream, or to `stream=`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from ..artifact import Artifact
from ..errors import LaminaRuntimeError
from ..loader import Image
from ..model import EntryModel
from ..program import Constants
from . import cuda, hip
from .array import DeviceArray
from .call import GpuCaller
from .drivers import Device
from .program import GpuProgram
from .table import ENTRY


def parse_device(text: str) -> Device:
    """The device that `cuda`, `cuda:1` or `hip:0` names."""
    kind, _, number = text.partition(":")
    if kind not in ("cuda", "hip") or not (number.isdigit() or not number):
        raise LaminaRuntimeError(f"device '{text}' is not supported; devices: cpu, cuda, cuda:N, hip, hip:N")
    return (cuda if kind == "cuda" else hip).device(int(number or 0))


def launcher(artifact: Artifact) -> Image | None:
    """The code by which this host launches the artifact's programs on GPUs; None: it has none for it."""
    if found := artifact.host_launcher():
        image = Image(found, "launcher")
        with contextlib.suppress(LaminaRuntimeError):  # its table is of another version
            image.address(ENTRY)
            return image
    return None


class GpuModel(EntryModel):
    """A loaded entry point on a GPU. With `graphs`, several launches of static sizes are one of the driver's graphs."""

    _caller: GpuCaller

    def __init__(self, artifact: Artifact, entry: str, device: Device, target: str | None = None, graphs: bool = False):
        self.device, target = device, artifact.choose(entry, target, device)
        self.program = GpuProgram(*artifact.program(entry, target), device=device, name=entry)
        caller = GpuCaller(self.program, tuple(artifact.state(entry)), launcher(artifact), graphs)
        super().__init__(artifact, entry, target, caller)

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]} on {self.device.kind}:{self.device.index}>"

    def __call__(self, *args: Any, stream: int = 0, **named: Any) -> Any:
        """Run; returns one DeviceArray, or a tuple of them. Does not wait for the device."""
        return self.run(self.initial_state().values(), *args, stream=stream, **named)

    def run(self, state: Iterable[DeviceArray], /, *args: Any, stream: int = 0, **named: Any) -> Any:
        if named or len(args) != len(self.inputs):
            args = self._caller.order(args, named, called=repr(self))
        return self._caller.call(stream, *args, *state)

    def _constants(self, weights: list[np.ndarray]) -> Constants:
        owners = [self._placed(w.reshape(-1).view(np.uint8)) for w in weights]
        plan = self.plan
        read = [place for row in plan["launches"] for place in row["args"]]
        read += [c["from"] for c in plan["before"] + plan["after"]] + [o["storage"] for o in plan["outputs"]]
        kept = [o for n, o in enumerate(owners) if ["weight", n] in read]  # not those that are packed alone
        constants = self.program.initialize([o.pointer for o in owners], kept)
        self.device.synchronize()
        return constants

    def _placed(self, array: np.ndarray) -> DeviceArray:
        return DeviceArray.of(self.device, array, 0)
