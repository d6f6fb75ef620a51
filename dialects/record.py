"""The graph record: a captured graph as plain data.

It is what the frontend hands to the compile worker, what the graph cache hashes, and what an MLIR `lamina` module is
imported from. It holds no tensor data, imports nothing heavy, and goes to JSON and back unchanged.

Every tensor is contiguous and row-major; a strided input is a contiguous input followed by view ops
(`permute`, `as_strided`), and a strided output is stated by the views that lead to it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from . import dims
from .dims import Dim


class RecordError(ValueError):
    """A graph record that does not fit together; `nodes` are the places of those nodes that do not, where known."""

    def __init__(self, message: str, nodes: Sequence[Location] = ()):
        super().__init__(message)
        self.nodes = tuple(nodes)


@dataclass(frozen=True)
class TensorType:
    """An element type (a name of `dtypes.DTYPES`) and a shape of sizes, possibly symbolic."""

    dtype: str
    shape: tuple[Dim, ...]

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def numel(self) -> Dim:
        return dims.product(self.shape)

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


class Location(NamedTuple):
    """The user's source line that an op came from, and the module path or op that made it."""

    file: str = ""
    line: int = 0
    name: str = ""

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.file else ""
        return f"{where} ({self.name})" if where and self.name else where or self.name or "unknown"


@dataclass(frozen=True)
class Symbol:
    """A named size with inclusive bounds (`maximum` None: unbounded) and a divisor.

    Its value is read from dimension `dim` of input number `input`; with `dim` -1 that input is a Python int.
    """

    name: str
    minimum: int = 0
    maximum: int | None = None
    multiple_of: int = 1
    input: int = -1
    dim: int = -1
    hint: int | None = None


@dataclass(frozen=True)
class Input:
    """One argument: `kind` is "input", "weight" (constant between calls, may be packed) or "scalar" (an int symbol)."""

    name: str
    value: int
    kind: str = "input"


@dataclass(frozen=True)
class Output:
    """One result. `mutates` names the input whose storage receives the value after the call (no caller result)."""

    name: str
    value: int
    mutates: str | None = None


@dataclass(frozen=True)
class Node:
    """One op: its name in the registry (no `lamina.` prefix), operands (None: absent), attributes and results."""

    op: str
    operands: tuple[int | None, ...]
    attributes: dict[str, Any]
    results: tuple[int, ...]
    location: Location = Location()


@dataclass
class Graph:
    """A functional graph in topological order; `types[v]` is the type of value `v`.

    Literal tensors are `constant` ops; weights have no data here.
    """

    name: str = "main"
    symbols: list[Symbol] = field(default_factory=list)
    inputs: list[Input] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    outputs: list[Output] = field(default_factory=list)
    types: list[TensorType] = field(default_factory=list)

    # -- building ---------------------------------------------------------------------------------------------
    def add_input(self, name: str, type: TensorType, kind: str = "input") -> int:
        """Append an argument and return its value."""
        value = self._value(type)
        self.inputs.append(Input(name, value, kind))
        return value

    def add(self, op: str, *operands: int | None, location: Location = Location(), **attributes: Any) -> Any:
        """Append an op with inferred result types; returns its value, or a tuple of values for several results.

        Operands follow the op's declaration; a variadic op takes its operands in a row. Missing attributes take
        their defaults. Errors are the op's own, with the location in front.
        """
        from .op import registry

        cls = registry(op)
        types = [None if v is None else self.types[v] for v in operands]
        attributes, results = cls.resolve(types, attributes, location)
        values = tuple(self._value(t) for t in results)
        self.nodes.append(Node(op, tuple(operands), attributes, values, location))
        return values[0] if cls.single_result else values

    def add_output(self, value: int, name: str = "", mutates: str | None = None) -> None:
        """Append a result."""
        self.outputs.append(Output(name or f"output{len(self.outputs)}", value, mutates))

    def _value(self, type: TensorType) -> int:
        self.types.append(type)
        return len(self.types) - 1

    # -- JSON -------------------------------------------------------------------------------------------------
    def to_json(self) -> str:
        """One JSON document; `Graph.from_json` reads it back to an equal record."""
        return json.dumps(
            {
                "name": self.name,
                "symbols": [list(vars(s).values()) for s in self.symbols],
                "inputs": [[i.name, i.value, i.kind] for i in self.inputs],
                "nodes": [[n.op, n.operands, _pack(n.attributes), n.results, list(n.location)] for n in self.nodes],
                "outputs": [[o.name, o.value, o.mutates] for o in self.outputs],
                "types": [[t.dtype, [d if isinstance(d, int) else str(d) for d in t.shape]] for t in self.types],
            },
            separators=(",", ":"),
        )

    @staticmethod
    def from_json(text: str) -> Graph:
        """Read what `to_json` wrote; anything else is a RecordError."""
        try:
            d = json.loads(text)
            return Graph(
                d["name"],
                [Symbol(*s) for s in d["symbols"]],
                [Input(*i) for i in d["inputs"]],
                [Node(op, tuple(a), _unpack(t), tuple(r), Location(*l)) for op, a, t, r, l in d["nodes"]],
                [Output(*o) for o in d["outputs"]],
                [TensorType(t, tuple(dims.parse(x) for x in s)) for t, s in d["types"]],
            )
        except (KeyError, TypeError, ValueError) as error:
            reason = f"it has no {error}" if isinstance(error, KeyError) else str(error)
            raise RecordError(f"not a graph record: {reason}") from None


def _pack(value: Any) -> Any:
    """Attributes to JSON: expressions become {"dim": text}, non-finite floats {"float": text}, tuples lists."""
    if isinstance(value, dims.Expr):
        return {"dim": str(value)}
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return {"float": repr(value)}
    if isinstance(value, dict):
        return {"dict": {k: _pack(v) for k, v in value.items()}}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_pack(v) for v in value]
    return value


def _unpack(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_unpack(v) for v in value)
    if isinstance(value, dict):
        if "dim" in value:
            return dims.parse(value["dim"])
        if "float" in value:
            return float(value["float"])
        return {k: _unpack(v) for k, v in value["dict"].items()}
    return value
