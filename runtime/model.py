"""A loaded entry point, wherever it runs: its names, its weights, its state. `api.Model` and `gpu.model.GpuModel` add calls."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from .artifact import Artifact
from .caller import replaced_weights
from .program import Constants

if TYPE_CHECKING:
    from .call import Caller
    from .gpu.call import GpuCaller


class EntryModel(ABC):
    """An entry point of an artifact. `inputs` and `outputs` are the names of arguments and results, in order."""

    def __init__(self, artifact: Artifact, entry: str, target: str, caller: Caller | GpuCaller):
        self.artifact, self.entry, self.target, self._caller = artifact, entry, target, caller
        self.plan = caller.program.plan
        self.inputs = caller.names
        self.outputs = tuple(o["name"] for o in self.plan["outputs"] if o["mutates"] is None)
        self._state = artifact.state(entry)  # input → name of its initial value
        self._weights: dict[str, np.ndarray] = {}  # those swapped in
        self._lock = threading.RLock()
        self.swap_weights({})

    def __repr__(self) -> str:
        return f"<lamina {self._caller} for {self.target}>"

    def __reduce__(self) -> Any:
        raise TypeError(f"a loaded model cannot be pickled or copied; load {self.artifact.path} again")

    def session(self) -> Session:
        """A copy of the state that calls through it read and write."""
        return Session(self)

    def swap_weights(self, weights: Mapping[str, Any]) -> None:
        """Replace weights by name and compute again what depends on them; calls that run now finish with the old."""
        specs = {w["name"]: w for w in self.plan["weights"]}
        with self._lock:
            arrays = replaced_weights(self._weights, specs, weights)
            constants = self._constants([arrays[n] if n in arrays else self.artifact.weight_bytes(n) for n in specs])
            self._weights, self._caller.constants = arrays, constants
            self.artifact.let_go()  # most of it, packed or on a GPU, is not read again

    def initial_state(self) -> dict[str, Any]:
        """The initial values of the inputs that are state, by name, in memory of their own."""
        return {name: self._placed(self.artifact.weight(weight)) for name, weight in self._state.items()}

    @abstractmethod
    def run(self, state: Iterable[Any], /, *args: Any, **named: Any) -> Any:
        """Run on arrays and a state, which is updated."""

    @abstractmethod
    def _constants(self, weights: list[np.ndarray]) -> Constants:
        """Compute what depends on the weights."""

    @abstractmethod
    def _placed(self, array: np.ndarray) -> Any:
        """A copy of an array where the program runs."""


class Session:
    """A model with a state of its own. Calls on one session run one after the other."""

    def __init__(self, model: EntryModel):
        self.model, self._lock = model, threading.RLock()
        self.reset()

    def reset(self) -> None:
        """Go back to the initial state."""
        self.state = self.model.initial_state()

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Run on the state and update it; otherwise like calling the model."""
        with self._lock:
            return self.model.run(self.state.values(), *args, **named)
