"""Let attention write its result in the order in which the next layer reads it."""

from __future__ import annotations

from mlir import ir

from ...dialects.mlir_ops import build
from ..registry import register
from .dataflow import Dataflow, Node, entry_functions, read_function


@register
def store_by_tokens(module: ir.Module) -> None:
    """Copy a result of attention that is only read with its dims permuted: an epilogue that stores in that order.

    Heads are computed one by one, `[B, H, S, D]`, and the layer after them reads `[B, S, H, D]`, in rows of `H D`. In the first
    order these are no rows of one stride, and a GPU's copy engine cannot read them.

    Before:
    ```mlir
    func.func @main(%q: tensor<2x4x8x16xf32>) -> tensor<2x8x64xf32> {
      %y, %lse = "lamina.attention"(%q, %q, %q) {causal = false, gqa = 1 : i64, scale = unit} : (tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>) -> (tensor<2x4x8x16xf32>, tensor<2x4x8xf32>)
      %0 = "lamina.permute"(%y) {dims = array<i64: 0, 2, 1, 3>} : (tensor<2x4x8x16xf32>) -> tensor<2x8x4x16xf32>
      %1 = "lamina.reshape"(%0) {shape = ["2", "8", "64"]} : (tensor<2x8x4x16xf32>) -> tensor<2x8x64xf32>
      %2 = "lamina.neg"(%1) : (tensor<2x8x64xf32>) -> tensor<2x8x64xf32>
      return %2 : tensor<2x8x64xf32> }
    ```
    After:
    ```mlir
    func.func @main(%q: tensor<2x4x8x16xf32>) -> tensor<2x8x64xf32> {
      %y, %lse = "lamina.attention"(%q, %q, %q) {causal = false, gqa = 1 : i64, scale = unit} : (tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>) -> (tensor<2x4x8x16xf32>, tensor<2x4x8xf32>)
      %0 = "lamina.permute"(%y) {dims = array<i64: 0, 2, 1, 3>} : (tensor<2x4x8x16xf32>) -> tensor<2x8x4x16xf32>
      %c = "lamina.materialize"(%0) : (tensor<2x8x4x16xf32>) -> tensor<2x8x4x16xf32>
      %1 = "lamina.reshape"(%c) {shape = ["2", "8", "64"]} : (tensor<2x8x4x16xf32>) -> tensor<2x8x64xf32>
      %2 = "lamina.neg"(%1) : (tensor<2x8x64xf32>) -> tensor<2x8x64xf32>
      return %2 : tensor<2x8x64xf32> }
    ```
    """
    with module.context:
        for function in entry_functions(module):
            flow = read_function(function)
            for node in flow.nodes:
                if node.name == "permute" and _turns_attention(flow, node):
                    _copy(node, flow.users[node.results[0]])


def _turns_attention(flow: Dataflow, node: Node) -> bool:
    """True if `node` is all that reads the result of an attention, keeps its last dim, and only reshapes read it."""
    value = node.inputs[0]
    producer = flow.producer[value]
    if producer is None or producer.name != "attention" or producer.results[0] != value:
        return False
    readers = flow.users[node.results[0]]
    if len(flow.users[value]) != 1 or value in flow.returned or node.results[0] in flow.returned or not readers:
        return False
    last = len(flow.types[value].shape) - 1
    return node.attributes["dims"][-1] == last and all(r.name == "reshape" for r in readers)


def _copy(permute: Node, readers: list[Node]) -> None:
    """Put a copy between `permute` and its readers."""
    location, ip = permute.op.location, ir.InsertionPoint(readers[0].op)
    made = build("materialize", [permute.op.results[0]], location=location, ip=ip)
    for reader in readers:
        reader.op.operands[0] = made.results[0]
