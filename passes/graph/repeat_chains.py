"""Compute a product's operand by itself where a gradient needs what is inside of it."""

from __future__ import annotations

from mlir import ir

from ..registry import register
from .dataflow import Dataflow, Node, entry_functions, read_function
from .kernel_costs import is_leaf

MOST = 32  # ops of a chain: GELU by tanh, as models spell it, has a dozen


@register
def repeat_chains(module: ir.Module) -> None:
    """Repeat, for products alone, a chain of pointwise ops on inputs of which later ops read what is inside.

    A backward pass computes an activation function again, for the gradient of the weights that it is multiplied by; what it
    computes on the way is also part of its derivative, which belongs to a later product's epilogue. That would read it from memory,
    tensor by tensor, where it can compute it from the one input.

    Before:
    ```mlir
    func.func @main(%x: tensor<4x8xf32>, %g: tensor<4x3xf32>, %w: tensor<3x8xf32>) -> (tensor<3x8xf32>, tensor<4x8xf32>) {
      %t = "lamina.tanh"(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>
      %y = "lamina.mul"(%x, %t) : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
      %gt = "lamina.permute"(%g) {dims = array<i64: 1, 0>} : (tensor<4x3xf32>) -> tensor<3x4xf32>
      %dw = "lamina.matmul"(%gt, %y) : (tensor<3x4xf32>, tensor<4x8xf32>) -> tensor<3x8xf32>
      %dy = "lamina.matmul"(%g, %w) : (tensor<4x3xf32>, tensor<3x8xf32>) -> tensor<4x8xf32>
      %dx = "lamina.mul"(%dy, %t) : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
      return %dw, %dx : tensor<3x8xf32>, tensor<4x8xf32> }
    ```
    After:
    ```mlir
    func.func @main(%x: tensor<4x8xf32>, %g: tensor<4x3xf32>, %w: tensor<3x8xf32>) -> (tensor<3x8xf32>, tensor<4x8xf32>) {
      %t = "lamina.tanh"(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>
      %s = "lamina.tanh"(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>
      %y = "lamina.mul"(%x, %s) : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
      %gt = "lamina.permute"(%g) {dims = array<i64: 1, 0>} : (tensor<4x3xf32>) -> tensor<3x4xf32>
      %dw = "lamina.matmul"(%gt, %y) : (tensor<3x4xf32>, tensor<4x8xf32>) -> tensor<3x8xf32>
      %dy = "lamina.matmul"(%g, %w) : (tensor<4x3xf32>, tensor<3x8xf32>) -> tensor<4x8xf32>
      %dx = "lamina.mul"(%dy, %t) : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
      return %dw, %dx : tensor<3x8xf32>, tensor<4x8xf32> }
    ```
    """
    with module.context:
        for function in entry_functions(module):
            flow = read_function(function)
            early = _of_inputs(flow)
            chains = [(n, chain) for n in flow.nodes if n in early and (chain := _shared_chain(flow, n, early))]
            for last, chain in chains:
                _repeat(flow, last, chain)


def _of_inputs(flow: Dataflow) -> set[Node]:
    """Pointwise ops and views that depend on inputs through such ops alone."""
    found: set[Node] = set()
    for node in flow.nodes:
        if node.category in ("pointwise", "view", "creation") and len(node.results) == 1:
            producers = [flow.producer[v] for v in node.inputs]
            if all(is_leaf(p) or p in found for p in producers):
                found.add(node)
    return found


def _shared_chain(flow: Dataflow, last: Node, early: set[Node]) -> list[Node]:
    """What `last` is computed by, in order, if only products read it and later ops what is inside; else nothing."""
    if last.category != "pointwise" or not _feeds_products_only(flow, last.results[0]):
        return []
    chain, left = {last}, [last]
    while left and len(chain) <= MOST:
        producers = (flow.producer[v] for v in left.pop().inputs)
        new = [p for p in dict.fromkeys(producers) if p in early and p not in chain]
        chain.update(new)
        left += new
    readers = (u for n in chain if n is not last for u in flow.users[n.results[0]])
    if len(chain) > MOST or all(u in early for u in readers):
        return []
    return sorted(chain, key=lambda n: n.index)


def _feeds_products_only(flow: Dataflow, value: int) -> bool:
    """True if a value is read, through views, by matrix products alone."""
    readers = flow.users[value]
    if not readers or value in flow.returned:
        return False
    return all(
        r.category == "matmul" or (r.category == "view" and _feeds_products_only(flow, r.results[0])) for r in readers
    )


def _repeat(flow: Dataflow, last: Node, chain: list[Node]) -> None:
    """Let a copy of `chain` take the place of `last`."""
    ip, made = ir.InsertionPoint(last.op), dict[int, ir.Value]()
    for node in chain[:-1]:
        copy = node.op.clone(ip).operation
        for number, value in enumerate(node.inputs):
            if value in made:
                copy.operands[number] = made[value]
        made[node.results[0]] = copy.results[0]
    for number, value in enumerate(last.inputs):
        if value in made:
            last.op.operands[number] = made[value]
