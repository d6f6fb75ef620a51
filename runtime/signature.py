"""What an entry point accepts: checks shapes and element types of a call and finds the values of its symbols."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .errors import ArtifactError, LaminaRuntimeError
from .sizes import compile_sizes

Shape = Sequence[int]


def order_arguments(
    called: str, names: Sequence[str], args: Sequence[Any], named: Mapping[str, Any]
) -> tuple[Any, ...]:
    """The arguments of inputs `names` in order, those after the positional ones by name; `called` is for messages."""
    rest = names[len(args) :]
    for name in named:
        if name not in rest:
            raise LaminaRuntimeError(f"{called} has no input '{name}' left; inputs: {', '.join(names)}")
    missing = [n for n in rest if n not in named]
    if missing:
        raise LaminaRuntimeError(f"input '{missing[0]}' is missing; this is {called}")
    if len(args) > len(names):
        raise LaminaRuntimeError(f"{called} takes {len(names)} inputs, got {len(args)}")
    return (*args, *(named[n] for n in rest))


class Signature:
    """The inputs and symbols of a plan."""

    def __init__(self, plan: Mapping[str, Any], entry: str):
        self.entry, self.inputs, self.symbols = entry, plan["inputs"], plan["symbols"]
        names = [s["name"] for s in self.symbols]
        for s in self.symbols:
            if not 0 <= s["input"] < len(self.inputs):
                raise ArtifactError(f"entry '{entry}': symbol '{s['name']}' is read from no input")
        self._expected = compile_sizes([d for i in self.inputs for d in i["shape"]], names)

    def describe(self, number: int) -> str:
        """An input as text: `x: f32[s0, 8]`."""
        i = self.inputs[number]
        return f"{i['name']}: int" if i["kind"] == "scalar" else f"{i['name']}: {_type(i)}"

    def check_dtype(self, number: int, dtype: str) -> None:
        """LaminaRuntimeError if input `number` may not have this element type."""
        expected = self.inputs[number]["dtype"]
        if dtype != expected and not (dtype == "u8" and expected.startswith("f8")):
            raise LaminaRuntimeError(
                f"input '{self.inputs[number]['name']}' has dtype {dtype}, expected {expected}; convert it before the call"
            )

    def bind(self, shapes: Sequence[Shape], scalars: Mapping[int, int] | None = None) -> tuple[int, ...]:
        """The values of the symbols for inputs of these shapes; LaminaRuntimeError names the first that is wrong.

        `scalars` gives the values of the inputs that are Python ints, by their number.
        """
        for shape, spec in zip(shapes, self.inputs):
            if len(shape) != len(spec["shape"]):
                raise LaminaRuntimeError(
                    f"input '{spec['name']}' has rank {len(shape)} (shape {tuple(shape)}), expected {_type(spec)}"
                )
        values = tuple(self._value(s, shapes, scalars or {}) for s in self.symbols)
        expected = iter(self._expected(*values))
        for number, (shape, spec) in enumerate(zip(shapes, self.inputs)):
            for dim, (size, written) in enumerate(zip(shape, spec["shape"])):
                wanted = next(expected)
                if size != wanted:
                    raise LaminaRuntimeError(self._wrong_size(number, dim, size, written, wanted, values))
        return values

    def _value(self, symbol: Mapping[str, Any], shapes: Sequence[Shape], scalars: Mapping[int, int]) -> int:
        number, dim = symbol["input"], symbol["dim"]
        name, spec = symbol["name"], self.inputs[number]
        value = scalars[number] if dim < 0 else shapes[number][dim]
        what = f"input '{spec['name']}' " + (f"is {value}" if dim < 0 else f"has size {value} in dim {dim}")
        low, high, factor = symbol["min"], symbol["max"], symbol["multiple_of"]
        if value < low or (high is not None and value > high):
            allowed = f"{low} or more" if high is None else f"{low}..{high}"
            raise LaminaRuntimeError(f"{what}; '{name}' must be {allowed}: compile for a wider range")
        if value % factor:
            raise LaminaRuntimeError(f"{what}; '{name}' must be a multiple of {factor}: pad it")
        return value

    def _wrong_size(
        self, number: int, dim: int, size: int, written: int | str, wanted: int, values: tuple[int, ...]
    ) -> str:
        text = f"input '{self.inputs[number]['name']}' has size {size} in dim {dim}, expected {wanted}"
        if isinstance(written, str):
            given = ", ".join(
                f"{s['name']} = {v} from '{self.inputs[s['input']]['name']}'"
                for s, v in zip(self.symbols, values)
                if s["name"] in written
            )
            text += f" ({written} where {given})"
        return f"{text}; the input is {_type(self.inputs[number])}"


def _type(spec: Mapping[str, Any]) -> str:
    return f"{spec['dtype']}[{', '.join(map(str, spec['shape']))}]"
