"""Compute on GPUs what is inserted into a tensor with that tensor, where it is not written into its memory."""

from __future__ import annotations

from collections.abc import Container

from mlir import ir

from ...dialects.mlir_ops import create
from ...dialects.op import registry
from ..registry import register
from .dataflow import Dataflow, Node, entry_functions, read_function
from .reinplace import UPDATES, replaced_arguments

# Insertions into one tensor that are computed with it. What else is inserted is written over their result, in place: each
# by itself would read and write the whole tensor.
MOST = 2


@register
def choose_inserted(module: ir.Module) -> None:
    """Turn `slice_scatter` into `insert`, a choice between two tensors that fuses, but where it may be done in place.

    In place are updates of an argument that gets a new value (a cache), and all but the first two of one tensor.

    Before:
    ```mlir
    func.func @main(%x: tensor<8x4xf32>, %y: tensor<1x4xf32>) -> tensor<8x4xf32> {
      %0 = "lamina.slice_scatter"(%x, %y) {starts = ["3", "0"], steps = array<i64: 1, 1>} : (tensor<8x4xf32>, tensor<1x4xf32>) -> tensor<8x4xf32>
      return %0 : tensor<8x4xf32> }
    ```
    After:
    ```mlir
    func.func @main(%x: tensor<8x4xf32>, %y: tensor<1x4xf32>) -> tensor<8x4xf32> {
      %0 = "lamina.insert"(%x, %y) {starts = ["3", "0"], steps = array<i64: 1, 1>} : (tensor<8x4xf32>, tensor<1x4xf32>) -> tensor<8x4xf32>
      return %0 : tensor<8x4xf32> }
    ```
    """
    with module.context:
        for function in entry_functions(module):
            flow = read_function(function)
            replaced = replaced_arguments(flow)
            for node in [n for n in flow.nodes if n.name == "slice_scatter" and _is_computed(flow, n, replaced)]:
                made = create(
                    registry("insert"),
                    list(node.op.operands),
                    node.attributes,
                    [r.type for r in node.op.results],
                    node.op.location,
                    ir.InsertionPoint(node.op),
                )
                node.op.results[0].replace_all_uses_with(made.results[0])
                node.op.erase()


def _is_computed(flow: Dataflow, node: Node, replaced: Container[int]) -> bool:
    """True if nothing is gained by an update in place: of no argument with a new value, and among the first of its tensor."""
    value, count = node.inputs[0], 1
    while (producer := flow.producer[value]) is not None and producer.name in UPDATES:
        value, count = producer.inputs[0], count + (producer.name == "slice_scatter")
    return value not in replaced and count <= MOST
