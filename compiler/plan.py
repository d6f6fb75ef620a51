"""The plan of a program: which buffer every tensor lives in, as plain data (docs/contracts.md §8).

`PlanBuilder` takes a function as a list of launches and decides storage:

    argument, weight, persistent   the caller's buffers
    in-place result                the buffer of the operand that it overwrites
    result that leads to an output an output buffer, which the caller allocates; views of it share it
    any other result               the arena: offsets are planned at run time from sizes and lifetimes

The new value of a mutated input is made in the input's buffer where no launch from then on reads the old one; else it is
copied there at the end ("after"). An input whose old value is still wanted at the end although it is overwritten is
saved at the start ("before").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..dialects import dtypes
from ..dialects.dims import Dim
from ..dialects.record import Location, TensorType
from ..dialects.status import CHECKS
from ..dialects.strides import View, ViewError
from ..runtime import array_table
from .errors import CompileError

ABI = 1
SPACES = ("input", "weight", "persistent", "output", "arena")  # in the order of `buffers`
# what an image must export: entry points, and what runtime/threads.py and runtime/array_entry.py look up
EXPORTS = (
    "lamina_main",
    "lamina_init",
    "lamina_parallel_serial",
    "lamina_parallel_torch",
    "lamina_parallel_gomp",
    "lamina_parallel_pool",
    "lamina_pool_create_2",
    array_table.ENTRY,
)


class PlanError(CompileError):
    """A kernels-level function that is not what docs/contracts.md §4 says."""


@dataclass(eq=False)
class Buffer:
    """Contiguous memory for one tensor; `index` in its space is set when the plan is finished."""

    space: str
    type: TensorType
    index: int = -1
    first: int = 0
    last: int = 0


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor: a view of a buffer. `old` names the argument whose content before the call it is."""

    type: TensorType
    buffer: Buffer
    view: View
    old: str | None = None


@dataclass
class _Launch:
    kernel: str
    label: str
    arguments: list[Buffer]
    dims: list[Dim]
    location: Location


@dataclass
class PlanBuilder:
    """Collects one function (`@main` or `@init`) in program order; `finish` returns its part of the plan."""

    inputs: list[dict[str, Any]] = field(default_factory=list)
    arguments: dict[str, Buffer] = field(default_factory=dict)
    weights: dict[str, Buffer] = field(default_factory=dict)
    persistent: dict[int, Buffer] = field(default_factory=dict)
    computed: list[Buffer] = field(default_factory=list)
    launches: list[_Launch] = field(default_factory=list)

    def argument(self, name: str, type: TensorType, kind: str = "input") -> Value:
        """The next argument of the function."""
        buffer = self.arguments[name] = Buffer("input", type, len(self.arguments))
        self.inputs.append({"name": name, "kind": kind, "dtype": type.dtype, "shape": [size(d) for d in type.shape]})
        return _whole(buffer, old=name)

    def weight(self, symbol: str, type: TensorType) -> Value:
        """The weight called `symbol`."""
        return _whole(self.weights.setdefault(symbol, Buffer("weight", type)))

    def stored(self, index: int, type: TensorType) -> Value:
        """Result `index` of `@init`."""
        return _whole(self.persistent.setdefault(index, Buffer("persistent", type, index)))

    def view(self, op: str, attributes: Mapping[str, Any], value: Value, type: TensorType) -> Value:
        """A view op on a value; PlanError if strides cannot express it."""
        try:
            return Value(type, value.buffer, value.view.apply(op, dict(attributes)), value.old)
        except ViewError as error:
            raise PlanError(f"an output is no strided view of a buffer: {error}") from None

    def launch(
        self,
        kernel: str,
        arguments: Sequence[Value],
        results: Sequence[TensorType],
        dims: Sequence[Dim],
        inplace: Mapping[int, int],
        location: Location = Location(),
        label: str = "",
    ) -> list[Value]:
        """Append a launch; `inplace` maps a result's number to the operand that it overwrites."""
        now = len(self.launches)
        for number, value in enumerate(arguments):
            if not value.view.contiguous or value.view.offset != 0:
                raise PlanError(f"operand {number} of kernel '{kernel}' is a view; views belong into the kernel")
            value.buffer.last = max(value.buffer.last, now)
        made = []
        for number, type in enumerate(results):
            if number in inplace:
                buffer = arguments[inplace[number]].buffer
                if buffer.space in ("weight", "persistent"):
                    raise PlanError(f"kernel '{kernel}' writes over a {buffer.space} buffer")
                if dtypes.size(buffer.type.dtype) * buffer.type.numel != dtypes.size(type.dtype) * type.numel:
                    raise PlanError(f"kernel '{kernel}' writes {type} over {buffer.type}")
            else:
                buffer = Buffer("arena", type, -1, now, now)
                self.computed.append(buffer)
            made.append(_whole(buffer, type))
        buffers = [v.buffer for v in (*arguments, *made)]
        self.launches.append(_Launch(kernel, label or kernel, buffers, list(dims), location))
        return made

    def finish(self, outputs: Sequence[tuple[str, Value, str]]) -> dict[str, Any]:
        """The plan of `@main`. An output is its name, its value, and the input that it replaces or ""."""
        end = len(self.launches)
        overwritten = {target for _, _, target in outputs if target}
        saved: dict[str, Buffer] = {}
        after: list[tuple[Buffer, Value]] = []
        results: list[Value] = []
        for _, value, target in outputs:
            unchanged = value.old == target and _is_whole(value)
            if value.old in overwritten and value.old is not None and not (target and unchanged):
                buffer = saved.setdefault(value.old, Buffer("arena", value.buffer.type, -1, 0, end))
                value = Value(value.type, buffer, value.view)
            if not target:
                if value.buffer.space == "arena":
                    value.buffer.space = "output"
                    if _is_whole(value):  # what an artifact's call returns is this buffer: of the result's shape
                        value.buffer.type = value.type
            elif not unchanged and not (value.buffer is self.arguments[target] and _is_whole(value)):
                if not value.view.contiguous:
                    raise PlanError(f"the new value of '{target}' is a view; form_kernels must materialise it")
                value.buffer.last = end
                after.append((self.arguments[target], value))
            results.append(value)
        after = [pair for pair in after if not self._written_there(*pair, results, saved)]
        self.computed += saved.values()
        plan = self._numbered()
        plan["before"] = [_copy(buffer, _whole(self.arguments[name])) for name, buffer in saved.items()]
        plan["after"] = [_copy(target, value) for target, value in after]
        plan["outputs"] = [self._output(n, v, t) for (n, _, t), v in zip(outputs, results)]
        return plan

    def _written_there(
        self, target: Buffer, value: Value, results: Sequence[Value], saved: Mapping[str, Buffer]
    ) -> bool:
        """Put the new value of an argument into the argument's buffer as it is computed, if nobody reads the old then.

        No launch from the one that makes the value on may have the argument among its buffers: kernels may write a
        result before they have read their operands.
        """
        made = value.buffer
        if made.space != "arena" or not _is_whole(value) or made in saved.values():
            return False
        if sum(r.buffer is made for r in results) > 1 or any(
            target in l.arguments for l in self.launches[made.first :]
        ):
            return False
        made.space, made.index = target.space, target.index
        return True

    def finish_init(self, results: Sequence[Value]) -> dict[str, Any]:
        """The plan of `@init`, whose results become the persistent buffers."""
        after = []
        for index, value in enumerate(results):
            if value.buffer.space == "arena" and _is_whole(value):
                value.buffer.space, value.buffer.index = "persistent", index
            elif not value.view.contiguous:
                raise PlanError(f"result {index} of @init is a view; it must be the result of a launch")
            else:
                value.buffer.last = len(self.launches)
                after.append((Buffer("persistent", value.type, index), value))
        plan = self._numbered()
        plan["persistent"] = [_described(v.type) for v in results]
        plan["after"] = [_copy(target, value) for target, value in after]
        return plan

    def _numbered(self) -> dict[str, Any]:
        """Number the buffers of each space, and describe those that a call needs and the launches."""
        spaces: dict[str, list[Buffer]] = {"output": [], "arena": []}
        for buffer in self.computed:
            if buffer.space in spaces:
                buffer.index = len(spaces[buffer.space])
                spaces[buffer.space].append(buffer)
        return {
            "buffers": [_described(b.type) for b in spaces["output"]],
            "arena": [{"bytes": size(_bytes(b.type)), "first": b.first, "last": b.last} for b in spaces["arena"]],
            "launches": [
                {
                    "kernel": launch.kernel,
                    "label": launch.label,
                    "args": [[b.space, b.index] for b in launch.arguments],
                    "dims": [size(d) for d in launch.dims],
                    "location": list(launch.location),
                }
                for launch in self.launches
            ],
            "before": [],
            "after": [],
        }

    def _output(self, name: str, value: Value, target: str) -> dict[str, Any]:
        return {
            "name": name,
            **_described(value.type),
            "storage": [value.buffer.space, value.buffer.index],
            "offset": size(value.view.offset),
            "strides": [size(s) for s in value.view.strides],
            "mutates": target or None,
        }


def whole_plan(
    main: dict[str, Any],
    init: dict[str, Any] | None,
    symbols: list[dict[str, Any]],
    inputs: list[dict[str, Any]],
    weights: Mapping[str, TensorType],
) -> dict[str, Any]:
    """Put the parts together (docs/artifact.md describes every field)."""
    mutated = {o["mutates"] for o in main["outputs"]}
    return {
        "abi": ABI,
        "symbols": symbols,
        "inputs": [{**i, "mutated": i["name"] in mutated} for i in inputs],
        "weights": [{"name": name, **_described(type)} for name, type in weights.items()],
        "persistent": init["persistent"] if init else [],
        **main,
        "init": init,
        "status": {str(c.code): [c.text, c.exception] for c in CHECKS},
    }


def size(dim: Dim) -> int | str:
    """A size as JSON: a number, or the text of an expression."""
    return dim if isinstance(dim, int) else str(dim)


def _whole(buffer: Buffer, type: TensorType | None = None, old: str | None = None) -> Value:
    type = type or buffer.type
    return Value(type, buffer, View.whole(type.shape), old)


def _is_whole(value: Value) -> bool:
    return value.view.contiguous and value.view.offset == 0 and _bytes(value.type) == _bytes(value.buffer.type)


def _bytes(type: TensorType) -> Dim:
    return type.numel * dtypes.size(type.dtype)


def _described(type: TensorType) -> dict[str, Any]:
    return {"dtype": type.dtype, "shape": [size(d) for d in type.shape]}


def _copy(to: Buffer, value: Value) -> dict[str, Any]:
    """A contiguous copy of `value` to the start of buffer `to`."""
    return {
        "to": [to.space, to.index],
        "from": [value.buffer.space, value.buffer.index],
        "offset": size(value.view.offset * dtypes.size(value.type.dtype)),
        "bytes": size(_bytes(value.type)),
    }
