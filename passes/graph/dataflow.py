"""A function's ops as plain Python data, for passes that think about the whole graph.

Values are numbers: the block arguments first, then the results in program order. Reading a function costs about 15 µs
an op; analyses on it cost no MLIR calls, and there are no wrappers left that a later pass could invalidate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from mlir import ir

from ...dialects.mlir_ops import attributes_of, op_class, operand_list
from ...dialects.mlir_types import _parse_type
from ...dialects.op import Op
from ...dialects.record import TensorType


@dataclass(eq=False)
class Node:
    """One op: its class (None for ops outside the registry), operands in declared order (None: absent), results."""

    index: int
    op: ir.Operation
    cls: type[Op] | None
    operands: tuple[int | None, ...]
    results: tuple[int, ...]

    @property
    def name(self) -> str:
        """The op's name without `lamina.`."""
        return self.cls.name if self.cls else self.op.name.removeprefix("lamina.")

    @property
    def category(self) -> str:
        return self.cls.category if self.cls else ""

    @cached_property
    def attributes(self) -> dict[str, Any]:
        return attributes_of(self.op)

    @property
    def inputs(self) -> list[int]:
        """The operands that are there."""
        return [v for v in self.operands if v is not None]


@dataclass
class Dataflow:
    """The nodes of one function without its terminator; `producer[v]` is None for an argument."""

    function: ir.Operation
    nodes: list[Node] = field(default_factory=list)
    types: list[TensorType] = field(default_factory=list)
    values: list[ir.Value] = field(default_factory=list)
    producer: list[Node | None] = field(default_factory=list)
    returned: list[int] = field(default_factory=list)

    @cached_property
    def users(self) -> list[list[Node]]:
        """The nodes that read each value, in order; one that reads it twice is there once."""
        users: list[list[Node]] = [[] for _ in self.types]
        for node in self.nodes:
            for v in dict.fromkeys(node.inputs):
                users[v].append(node)
        return users

    def base(self, value: int) -> int:
        """The value that a chain of views starts from."""
        producer = self.producer[value]
        while producer is not None and producer.category == "view":
            value = producer.inputs[0]
            producer = self.producer[value]
        return value

    def constant_nodes(self, accept: Callable[[Node], bool] = lambda node: True) -> set[Node]:
        """The registered ops that depend on weights and literals alone, through ops that `accept` takes."""
        found: set[Node] = set()
        for node in self.nodes:
            if node.cls is not None and all(self.producer[v] in found for v in node.inputs) and accept(node):
                found.add(node)
        return found


def read_function(function: ir.Operation) -> Dataflow:
    """Read the single block of `function`."""
    flow = Dataflow(function)
    block = function.regions[0].blocks[0]
    number: dict[ir.Value, int] = {}
    types: dict[ir.Type, TensorType] = {}

    def add(value: ir.Value, producer: Node | None) -> int:
        type = value.type
        if type not in types:
            types[type] = _parse_type(str(type))
        number[value] = len(flow.values)
        flow.values.append(value)
        flow.types.append(types[type])
        flow.producer.append(producer)
        return number[value]

    for argument in block.arguments:
        add(argument, None)
    for view in block.operations:
        op = view.operation
        if op.name == "func.return":
            flow.returned = [number[v] for v in op.operands]
            continue
        operands = tuple(None if v is None else number[v] for v in operand_list(op))
        node = Node(len(flow.nodes), op, op_class(op), operands, ())
        node.results = tuple(add(r, node) for r in op.results)
        flow.nodes.append(node)
    return flow


def functions(module: ir.Module) -> dict[str, ir.Operation]:
    """The functions of a module by name, in order."""
    found = {}
    for op in module.body.operations:
        if op.operation.name == "func.func":
            found[ir.StringAttr(op.operation.attributes["sym_name"]).value] = op.operation
    return found


def launched(launch: ir.Operation) -> str:
    """The name of the kernel that a `lamina.launch` runs."""
    return ir.FlatSymbolRefAttr(launch.attributes["kernel"]).value


def entry_functions(module: ir.Module) -> list[ir.Operation]:
    """`@main` and `@init`: the functions that are not kernels."""
    return [f for f in functions(module).values() if "lamina.kind" not in f.attributes]
