"""Move each kernel's ops into a function of its own; `@main` and `@init` only launch them (docs/contracts.md §4)."""

from __future__ import annotations

from dataclasses import dataclass, field

from mlir import ir

from ...dialects.mlir_ops import create
from ...dialects.mlir_types import mlir_type
from ...dialects.op import Op
from ...dialects.record import TensorType
from ..registry import register
from .dataflow import Dataflow, Node, entry_functions, read_function
from .kernel_costs import is_leaf, reads_buffer
from .rename_symbols import Renaming

_LABEL_WORDS = 4
_QUIET = frozenset("cast where add sub mul div eq ne lt le gt ge full iota constant materialize".split())


@register
def outline(module: ir.Module) -> None:
    """Make a function of every group of ops with the same `lamina.kernel`, and launch it. Equal kernels are one function.

    Before:
    ```mlir
    func.func @main(%x: tensor<?xf32, ["s0"]>) -> tensor<?xf32, ["s0"]> {
      %0 = "lamina.neg"(%x) {lamina.kernel = 0 : i64} : (tensor<?xf32, ["s0"]>) -> tensor<?xf32, ["s0"]>
      return %0 : tensor<?xf32, ["s0"]> }
    ```
    After:
    ```mlir
    func.func @main(%x: tensor<?xf32, ["s0"]>) -> tensor<?xf32, ["s0"]> {
      %0 = "lamina.launch"(%x) {kernel = @k0, dims = ["s0"]} : (tensor<?xf32, ["s0"]>) -> tensor<?xf32, ["s0"]>
      return %0 : tensor<?xf32, ["s0"]> }
    func.func private @k0(%x: tensor<?xf32, ["d0"]>) -> tensor<?xf32, ["d0"]>
        attributes {lamina.kind = "loops", lamina.symbols = ["d0"], lamina.label = "neg"} {
      %0 = "lamina.neg"(%x) : (tensor<?xf32, ["d0"]>) -> tensor<?xf32, ["d0"]>
      return %0 : tensor<?xf32, ["d0"]> }
    ```
    """
    with module.context, ir.Location.unknown():
        kernels: dict[tuple, str] = {}
        for function in entry_functions(module):
            _outline_function(module, read_function(function), kernels)


@dataclass
class Body:
    """A kernel before it is IR: ops with local value numbers; arguments first. Types are in the caller's symbols."""

    arguments: list[int] = field(default_factory=list)  # the caller's values
    ops: list[tuple[Node, tuple[int | None, ...], tuple[int, ...]]] = field(default_factory=list)
    results: list[int] = field(default_factory=list)  # local numbers
    local: dict[int, int] = field(default_factory=dict)  # of the caller's values
    types: list[TensorType] = field(default_factory=list)


def _outline_function(module: ir.Module, flow: Dataflow, kernels: dict[tuple, str]) -> None:
    groups: dict[int, list[Node]] = {}
    for node in flow.nodes:
        if "lamina.kernel" in node.op.attributes:
            groups.setdefault(ir.IntegerAttr(node.op.attributes["lamina.kernel"]).value, []).append(node)
    needed = _needed_outside(flow, groups)
    terminator = flow.function.regions[0].blocks[0].operations
    ip = ir.InsertionPoint(terminator[len(terminator) - 1])
    made: dict[int, ir.Value] = {v: value for v, value in enumerate(flow.values) if is_leaf(flow.producer[v])}
    for number in sorted(groups):
        body = _collect(flow, groups[number], needed[number])
        renaming = Renaming.of(body.types, [node.attributes for node, _, _ in body.ops])
        key = _key(body, renaming)
        if key not in kernels:
            kernels[key] = f"k{len(kernels)}"
            _emit(module, kernels[key], body, renaming)
        launch = ir.Operation.create(
            "lamina.launch",
            results=[mlir_type(flow.types[v]) for v in needed[number]],
            operands=[made[v] for v in body.arguments],
            attributes={
                "kernel": ir.FlatSymbolRefAttr.get(kernels[key]),
                "dims": ir.ArrayAttr.get([ir.StringAttr.get(str(s)) for s in renaming.old]),
            },
            loc=_root(groups[number]).op.location,
            ip=ip,
        )
        made.update(zip(needed[number], launch.results))
    _return_views(flow, made, ip)
    _erase_old(flow)


def _needed_outside(flow: Dataflow, groups: dict[int, list[Node]]) -> dict[int, list[int]]:
    """The values of each group that other groups or the caller read, in program order."""
    group_of = {node: number for number, nodes in groups.items() for node in nodes}
    needed: dict[int, dict[int, None]] = {number: {} for number in groups}

    def need(value: int, reader: int | None, in_memory: bool) -> None:
        producer = flow.producer[value]
        if is_leaf(producer):
            return
        assert producer is not None
        number = group_of.get(producer)
        if number is not None and (producer.category != "creation" or in_memory or reader == number):
            if number != reader:
                needed[number][value] = None
            return
        for v in producer.inputs:
            need(v, reader, in_memory and producer.category == "view")

    for number, nodes in groups.items():
        for node in nodes:
            for i, v in enumerate(node.operands):
                if v is not None:
                    need(v, number, reads_buffer(node, i))
    for v in flow.returned:
        need(v, None, True)
    return {number: sorted(values) for number, values in needed.items()}


def _collect(flow: Dataflow, nodes: list[Node], results: list[int]) -> Body:
    """The ops of one kernel with the free ops that they read, each once."""
    body = Body()
    members = set(nodes)
    todo: list[tuple[Node, tuple[int | None, ...]]] = []
    inlined: dict[int, None] = {}

    def visit(value: int, in_memory: bool) -> None:
        producer = flow.producer[value]
        if value in inlined or value in body.local:
            return
        outside = is_leaf(producer) or (producer not in members and "lamina.kernel" in producer.op.attributes)  # type: ignore[union-attr]
        if outside and not (producer is not None and producer.category == "creation" and not in_memory):
            body.local[value] = -1
            body.arguments.append(value)
            return
        assert producer is not None
        for r in producer.results:
            inlined[r] = None
        for i, v in enumerate(producer.operands):
            if v is not None:
                visit(v, reads_buffer(producer, i) or (in_memory and producer.category == "view"))
        todo.append((producer, producer.operands))

    for node in nodes:
        for r in node.results:
            visit(r, False)
    body.types = [flow.types[v] for v in body.arguments]
    body.local = {v: i for i, v in enumerate(body.arguments)}
    for node, operands in todo:
        made = tuple(range(len(body.types), len(body.types) + len(node.results)))
        body.ops.append((node, tuple(None if v is None else body.local[v] for v in operands), made))
        body.local.update(zip(node.results, made))
        body.types += [flow.types[r] for r in node.results]
    body.results = [body.local[v] for v in results]
    return body


def _key(body: Body, renaming: Renaming) -> tuple:
    """What equal kernels have in common: everything but locations and the names of symbols."""
    # repr tells 0.0 from -0.0 and 1 from True
    ops = tuple((n.name, repr(renaming.attributes(n.attributes)), operands) for n, operands, _ in body.ops)
    return tuple(map(renaming.type, body.types)), len(body.arguments), ops, tuple(body.results)


def _emit(module: ir.Module, name: str, body: Body, renaming: Renaming) -> None:
    types = [mlir_type(renaming.type(t)) for t in body.types]
    arguments = types[: len(body.arguments)]
    results = [types[r] for r in body.results]
    nodes = [node for node, _, _ in body.ops]
    function = ir.Operation.create(
        "func.func",
        attributes={
            "sym_name": ir.StringAttr.get(name),
            "sym_visibility": ir.StringAttr.get("private"),
            "function_type": ir.TypeAttr.get(ir.FunctionType.get(arguments, results)),
            "lamina.kind": ir.StringAttr.get(kernel_kind(nodes)),
            "lamina.label": ir.StringAttr.get(kernel_label(nodes)),
            "lamina.symbols": ir.ArrayAttr.get([ir.StringAttr.get(s) for s in renaming.new]),
        },
        regions=1,
        ip=ir.InsertionPoint(module.body),
    )
    block = function.regions[0].blocks.append(*arguments, arg_locs=[ir.Location.unknown()] * len(arguments))
    ip = ir.InsertionPoint(block)
    values: list[ir.Value | None] = [*block.arguments, *[None] * (len(types) - len(arguments))]
    for node, operands, made in body.ops:
        cls: type[Op] = node.cls  # type: ignore[assignment]
        op = create(
            cls,
            [None if v is None else values[v] for v in operands],
            renaming.attributes(node.attributes),
            [renaming.type(body.types[r]) for r in made],
            node.op.location,
            ip,
        )
        for number, value in zip(made, op.results):
            values[number] = value
    ir.Operation.create("func.return", operands=[values[r] for r in body.results], ip=ip)  # type: ignore[misc]


def kernel_kind(nodes: list[Node]) -> str:
    """`lamina.kind` of a kernel with these ops (contracts §4)."""
    root = _root(nodes)
    if root.category == "direct":
        return root.name
    return root.category if root.category in ("matmul", "conv", "attention", "concat") else "loops"


def kernel_label(nodes: list[Node]) -> str:
    """A name for people: the telling ops of the kernel, such as `linear_gelu`."""
    words = list(dict.fromkeys(n.name for n in nodes if n.category not in ("view", "creation")))
    telling = [w for w in words if w not in _QUIET] or words or [n.name for n in nodes]
    return "_".join(telling[:_LABEL_WORDS])


def _root(nodes: list[Node]) -> Node:
    order = ("matmul", "conv", "attention", "direct", "concat", "row", "reduction")
    return min(nodes, key=lambda n: order.index(n.category) if n.category in order else len(order))


def _return_views(flow: Dataflow, made: dict[int, ir.Value], ip: ir.InsertionPoint) -> None:
    """Lead from launch results to what the function returns, through copies of its view ops."""

    def value(v: int) -> ir.Value:
        if v not in made:
            node = flow.producer[v]
            assert node is not None and node.category == "view", "a returned value is in memory or a view of one"
            cls: type[Op] = node.cls  # type: ignore[assignment]
            operands = [value(o) for o in node.inputs]
            op = create(cls, operands, node.attributes, [flow.types[v]], node.op.location, ip)
            made[v] = op.results[0]
        return made[v]

    operands = [value(v) for v in flow.returned]
    block = flow.function.regions[0].blocks[0]
    terminator = block.operations[len(block.operations) - 1]
    for i, v in enumerate(operands):
        terminator.operation.operands[i] = v


def _erase_old(flow: Dataflow) -> None:
    for node in reversed(flow.nodes):
        if not is_leaf(node):
            node.op.erase()
