"""`lamina.load`: an artifact as a function of arrays.

    model = lamina.load("model.lamina")
    y = model(x)                          # numpy arrays, or anything with __dlpack__
    model(x, out=y)                       # into an array of the caller's
    model.swap_weights({"fc.weight": w})  # the same code with other weights

A model with state (a KV cache, running statistics) called like this starts from its initial state each time;
`session = model.session()` keeps a state of its own from call to call.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from .arrays import pointer
from .artifact import Artifact, read_artifact, reading
from .call import Caller
from .model import EntryModel
from .program import Constants, LoadedProgram

if TYPE_CHECKING:
    from pathlib import Path

    from .gpu.model import GpuModel


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
    place = None
    if device != "cpu":
        from .gpu import model

        place = model.parse_device(device)
    artifact = read_artifact(path, verify)
    with reading(artifact.path):
        if place:
            return model.GpuModel(artifact, entry, place, target, graphs)
        return Model(artifact, entry, artifact.choose(entry, target), threads)


class Model(EntryModel):
    """A loaded entry point. Calls from several threads run at the same time."""

    _caller: Caller

    def __init__(self, artifact: Artifact, entry: str, target: str, threads: int | None = None):
        program = LoadedProgram(*artifact.program(entry, target), name=entry)
        caller = Caller(program, tuple(artifact.state(entry)), threads)
        self._call = caller.call
        super().__init__(artifact, entry, target, caller)

    def __call__(self, *args: Any, out: Any = None, **named: Any) -> Any:
        """Run; returns one array, or a tuple of them for several results.

        `out` is an array, or a sequence with an array for each result, that receives the results.
        """
        if named or self._state:
            return self.run(self.initial_state().values(), *args, out=out, **named)
        return self._call(tuple(out) if isinstance(out, list) else out, *args)

    def run(self, state: Iterable[np.ndarray], /, *args: Any, out: Any = None, **named: Any) -> Any:
        if named:
            args = self._caller.order(args, named)
        return self._call(tuple(out) if isinstance(out, list) else out, *args, *state)

    def _constants(self, weights: list[np.ndarray]) -> Constants:
        return self._caller.program.initialize([pointer(w) for w in weights], weights, self._caller.threads)

    def _placed(self, array: np.ndarray) -> np.ndarray:
        return array.copy()
