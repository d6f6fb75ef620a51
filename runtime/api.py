"""`lamina.load`: an artifact as a function of arrays.

    model = lamina.load("model.lamina")
    y = model(x)                          # numpy arrays, or anything with __dlpack__
    model(x, out=y)                       # into an array of the caller's
    model.swap_weights({"fc.weight": w})  # the same code with other weights

A model with state (a KV cache, running statistics) called like this starts from its initial state each time;
`session = model.session()` keeps a state of its own from call to call.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from .artifact import Artifact, read_artifact, reading
from .call import Caller
from .caller import Session, replaced_weights
from .errors import LaminaRuntimeError
from .program import Constants, LoadedProgram

if TYPE_CHECKING:
    from pathlib import Path

    from .gpu_model import GpuModel

__all__ = ["LaminaRuntimeError", "Model", "Session", "load"]


def load(
    path: str | Path,
    device: str = "cpu",
    entry: str = "main",
    target: str | None = None,
    verify: bool = False,
    threads: int | None = None,
    graphs: bool = False,
) -> Model | GpuModel:
    """Load an entry point of an artifact for this machine, or for a GPU, `device="cuda:0"` or `"hip:0"` (a GpuModel).

    `target` names one of the artifact's targets instead of the best; `verify` checks the hashes of all weights;
    `threads` limits the threads of a call; `graphs` lets a GPU's driver launch all kernels of static sizes at once, as a
    CUDA or HIP graph. ArtifactError says why a file cannot be loaded. Loading runs the file's code: load what you trust.
    """
    if device != "cpu":
        from .gpu_model import GpuModel, parse_device

        place = parse_device(device)
        artifact = read_artifact(path, verify)
        with reading(artifact.path):
            return GpuModel(artifact, entry, place, target, graphs)
    artifact = read_artifact(path, verify)
    with reading(artifact.path):
        return Model(artifact, entry, artifact.choose(entry, target), threads)


class Model:
    """A loaded entry point. Calls from several threads run at the same time."""

    def __init__(self, artifact: Artifact, entry: str, target: str, threads: int | None = None):
        self.artifact, self.entry, self.target = artifact, entry, target
        program = LoadedProgram(*artifact.program(entry, target), name=entry)
        self.plan = program.plan
        self._state = artifact.state(entry)  # input → name of its initial value
        self._caller = Caller(program, tuple(self._state), threads)
        self._call = self._caller.call
        self._weights: dict[str, np.ndarray] = {}  # those swapped in
        self._lock = threading.Lock()
        self._initialize({})

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the arguments of a call, in order."""
        return self._caller.names

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the results, in order."""
        return tuple(o["name"] for o in self.plan["outputs"] if o["mutates"] is None)

    def __repr__(self) -> str:
        return f"<lamina {self._caller} for {self.target}>"

    def __call__(self, *args: Any, out: Any = None, **named: Any) -> Any:
        """Run; returns one array, or a tuple of them for several results.

        `out` is an array, or a sequence with an array for each result, that receives the results.
        """
        if named or self._state:
            return self.run(self.initial_state(), *args, out=out, **named)
        return self._call(tuple(out) if isinstance(out, list) else out, *args)

    def run(self, state: Iterable[np.ndarray], /, *args: Any, out: Any = None, **named: Any) -> Any:
        """Run on arrays and a state, which is updated."""
        if named:
            args = self._caller.order(args, named)
        return self._call(tuple(out) if isinstance(out, list) else out, *args, *state)

    def initial_state(self) -> list[np.ndarray]:
        """The initial values of the inputs that are state."""
        return [self.artifact.weight(name).copy() for name in self._state.values()]

    def session(self) -> Session:
        """A copy of the state that calls through it read and write."""
        return Session(self, self._state)

    def swap_weights(self, weights: Mapping[str, np.ndarray]) -> None:
        """Replace weights by name and compute again what depends on them; calls that run now finish with the old."""
        self._initialize(weights)

    def _initialize(self, changed: Mapping[str, np.ndarray]) -> None:
        specs = {w["name"]: w for w in self.plan["weights"]}
        with self._lock:
            arrays = replaced_weights(self._weights, specs, changed)
            data = [arrays.get(name, None) for name in specs]
            owners = [self.artifact.weight_bytes(n) if a is None else a for n, a in zip(specs, data)]
            pointers = [o.__array_interface__["data"][0] for o in owners]
            constants: Constants = self._caller.program.initialize(pointers, owners, self._caller.threads)
            self._weights, self._caller.constants = arrays, constants
