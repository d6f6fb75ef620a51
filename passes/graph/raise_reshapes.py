"""Move reshapes above pointwise ops on inputs, so that these have the shape of the matmul whose result they are combined with."""

from __future__ import annotations

from mlir import ir

from ...dialects.mlir_ops import build
from ..registry import register
from .dataflow import Dataflow, Node, entry_functions, read_function
from .dce import dce
from .kernel_costs import is_leaf
from .sink_reshapes import Shape, before_reshape


@register
def raise_reshapes(module: ir.Module) -> None:
    """Compute pointwise ops on inputs after a reshape that all readers take of them, rather than before it.

    What a backward pass computes again of saved values [batch, sequence, features] can then join the epilogue of a product
    whose rows are flattened (`sink_reshapes` has brought its own readers to its shape).

    Before:
    ```mlir
    func.func @main(%a: tensor<6x8xf32>, %x: tensor<2x3x8xf32>) -> tensor<6x8xf32> {
      %0 = "lamina.tanh"(%x) : (tensor<2x3x8xf32>) -> tensor<2x3x8xf32>
      %1 = "lamina.reshape"(%0) {shape = ["6", "8"]} : (tensor<2x3x8xf32>) -> tensor<6x8xf32>
      %2 = "lamina.mul"(%a, %1) : (tensor<6x8xf32>, tensor<6x8xf32>) -> tensor<6x8xf32>
      return %2 : tensor<6x8xf32> }
    ```
    After:
    ```mlir
    func.func @main(%a: tensor<6x8xf32>, %x: tensor<2x3x8xf32>) -> tensor<6x8xf32> {
      %0 = "lamina.reshape"(%x) {shape = ["6", "8"]} : (tensor<2x3x8xf32>) -> tensor<6x8xf32>
      %1 = "lamina.tanh"(%0) : (tensor<6x8xf32>) -> tensor<6x8xf32>
      %2 = "lamina.mul"(%a, %1) : (tensor<6x8xf32>, tensor<6x8xf32>) -> tensor<6x8xf32>
      return %2 : tensor<6x8xf32> }
    ```
    """
    with module.context:
        for function in entry_functions(module):
            flow = read_function(function)
            chosen = _choose(flow)
            made: dict[int, ir.Value] = {}
            for node in flow.nodes:
                if node in chosen:
                    _raise(flow, node, chosen[node], made)
    dce(module)


def _choose(flow: Dataflow) -> dict[Node, Shape]:
    """The ops to compute in another shape, and the shape."""
    chosen: dict[Node, Shape] = {}
    for node in reversed(flow.nodes):
        if node.category == "pointwise" and node.name != "materialize" and len(node.results) == 1:
            shapes = {_wanted(flow, node, user, chosen) for user in flow.users[node.results[0]]}
            shape = shapes.pop() if len(shapes) == 1 else None
            if shape is not None and node.results[0] not in flow.returned and _maps(flow, node, shape):
                chosen[node] = shape
    while stuck := [n for n, shape in chosen.items() if not _is_free(flow, n, shape, chosen)]:
        for node in stuck:
            del chosen[node]
    return chosen


def _wanted(flow: Dataflow, node: Node, user: Node, chosen: dict[Node, Shape]) -> Shape | None:
    """The shape in which `user` reads the result of `node`, if it is not that of the result."""
    if user.name == "reshape":
        shape = flow.types[user.results[0]].shape
        return shape if shape != flow.types[node.results[0]].shape else None
    same = flow.types[user.results[0]].shape == flow.types[node.results[0]].shape
    return chosen.get(user) if same else None


def _maps(flow: Dataflow, node: Node, new: Shape) -> bool:
    old = flow.types[node.results[0]].shape
    shapes = [flow.types[v].shape for v in node.inputs]
    return old in shapes and all(before_reshape(s, new, old) is not None for s in shapes)


def _is_free(flow: Dataflow, node: Node, shape: Shape, chosen: dict[Node, Shape]) -> bool:
    """True if the full operands are inputs, views of inputs or computed in `shape` too, and all readers want it so."""
    old = flow.types[node.results[0]].shape
    for v in node.inputs:
        producer = flow.producer[v]
        inside = producer in chosen and chosen[producer] == shape  # type: ignore[index]
        base = flow.producer[flow.base(v)]
        if flow.types[v].shape == old and not (
            inside or is_leaf(base) or base is not None and base.category == "creation"
        ):
            return False
    return all(_wanted(flow, node, user, chosen) == shape for user in flow.users[node.results[0]])


def _raise(flow: Dataflow, node: Node, new: Shape, made: dict[int, ir.Value]) -> None:
    """Build `node` in its new shape, and let the reshapes that read it be its result."""
    old, ip = flow.types[node.results[0]].shape, ir.InsertionPoint(node.op)
    operands: list[ir.Value | None] = []
    for v in node.operands:
        if v is None:
            operands.append(None)
            continue
        shape = before_reshape(flow.types[v].shape, new, old)
        assert shape is not None
        value = made.get(v, flow.values[v])
        if v not in made and shape != flow.types[v].shape:
            value = build("reshape", [value], {"shape": shape}, node.op.location, ip).results[0]
        operands.append(value)
    (result,) = build(node.name, operands, node.attributes, node.op.location, ip).results
    made[node.results[0]] = result
    for user in flow.users[node.results[0]]:
        if user.name == "reshape":
            flow.values[user.results[0]].replace_all_uses_with(result)
            flow.values[user.results[0]] = result
