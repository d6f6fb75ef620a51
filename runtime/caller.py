"""What calls of a program with arrays have in common, on the CPU (call.py) and on GPUs (gpu/call.py)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from .arrays import as_array, dtype_name, numpy_dtype
from .errors import LaminaRuntimeError
from .program import Constants, OutputSpec, Prepared
from .signature import Signature, order_arguments


class ProgramCaller:
    """The arguments, results and constants of a program that is called with arrays.

    `state` names the inputs that come from a session, after the arguments of a call.
    """

    def __init__(self, plan: Mapping[str, Any], name: str, state: Sequence[str]):
        self._name, self._plan = name, plan
        self._constants = Constants()
        self.signature = Signature(plan, name)
        positions = {i["name"]: n for n, i in enumerate(plan["inputs"])}
        states = [positions[name] for name in state]
        self._given = [n for n in range(len(plan["inputs"])) if n not in states]
        self.arguments = [*self._given, *states]  # the number of the input that each argument of a call is
        self.names = tuple(plan["inputs"][n]["name"] for n in self._given)
        self.mutated = {n for n, i in enumerate(plan["inputs"]) if i["mutated"]}
        self.scalars = {n for n, i in enumerate(plan["inputs"]) if i["kind"] == "scalar"}
        self._results = [n for n, o in enumerate(plan["outputs"]) if o["mutates"] is None]
        stored = [plan["outputs"][n]["storage"] for n in self._results]
        # are the results the buffers that a call allocates, in order?
        self.has_plain_results = stored == [["output", n] for n in range(len(plan["buffers"]))]
        self.changed: Callable[[], None] = lambda: None  # called when there are new constants

    @property
    def constants(self) -> Constants:
        """The weights that calls from now on read."""
        return self._constants

    @constants.setter
    def constants(self, constants: Constants) -> None:
        self._constants = constants
        self.changed()

    def __str__(self) -> str:
        return f"{self._name}({', '.join(map(self.signature.describe, self._given))})"

    def order(self, args: Sequence[Any], named: Mapping[str, Any], called: str = "") -> tuple[Any, ...]:
        """Arguments in order, those after the positional ones by name; `called` is for messages."""
        return order_arguments(called or str(self), self.names, args, named)

    def scalar(self, number: int, value: Any) -> int:
        """The value of input `number`, which is an int."""
        if not hasattr(value, "__index__"):
            name = self.signature.inputs[number]["name"]
            raise LaminaRuntimeError(f"input '{name}' is a {type(value).__name__}, expected an int")
        return value.__index__()

    def symbols(self, values: Sequence[Any]) -> tuple[int, ...]:
        """The values of the plan's symbols for the arguments of a call: arrays, and ints."""
        given = dict(zip(self.arguments, values))
        shapes = [() if n in self.scalars else tuple(given[n].shape) for n in range(len(given))]
        return self.signature.bind(shapes, {n: given[n] for n in self.scalars})

    def shown(self, prepared: Prepared) -> list[OutputSpec]:
        """The results that callers see: outputs that do not end in an input."""
        return [prepared.outputs[n] for n in self._results]

    def constant_pointer(self, o: OutputSpec) -> int:
        """Where the weight or persistent buffer begins in which result `o` lies."""
        return self.constants.pointers[o.index + (len(self._plan["weights"]) if o.space == "persistent" else 0)]


def replaced_weights(
    current: Mapping[str, Any], specs: Mapping[str, Mapping[str, Any]], changed: Mapping[str, Any]
) -> dict[str, Any]:
    """`current` with the arrays `changed`, by name; LaminaRuntimeError if one is not of its spec, and nothing changes.

    Arrays are copied: the caller may change theirs, and what was computed from them would not follow.
    """
    weights = dict(current)
    for name, value in changed.items():
        if name not in specs:
            raise LaminaRuntimeError(f"there is no weight '{name}'; weights: {', '.join(specs) or 'none'}")
        array, dtype, shape = as_array(value, name), specs[name]["dtype"], specs[name]["shape"]
        if dtype_name(array.dtype) != dtype or list(array.shape) != shape:
            raise LaminaRuntimeError(
                f"weight '{name}' is {dtype_name(array.dtype)}{list(array.shape)}, expected {dtype}{shape}"
            )
        weights[name] = np.array(array, numpy_dtype(dtype), order="C")
    return weights
