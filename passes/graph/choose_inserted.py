"""Compute on GPUs what is written into a tensor with that tensor, where it is not written into its memory."""

from __future__ import annotations

from collections.abc import Container

from mlir import ir

from ...dialects.families.scatter import placed
from ...dialects.mlir_ops import build, create
from ...dialects.mlir_types import type_of
from ...dialects.op import normalize_dim, registry
from ..registry import register
from .dataflow import Dataflow, Node, entry_functions, read_function
from .reinplace import UPDATES, replaced_arguments

# Insertions into one tensor that are computed with it. What else is inserted is written over their result, in place: each
# by itself would read and write the whole tensor.
MOST = 2


@register
def choose_inserted(module: ir.Module) -> None:
    """Turn `slice_scatter` into `insert`, a choice between two tensors that fuses, but where it may be done in place.

    In place are updates of an argument that gets a new value (a cache), and all but the first two of one tensor. In the same way a
    `scatter` of few updates for each line becomes `place`, one for each.

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
            chosen = {n: _insert for n in flow.nodes if n.name == "slice_scatter" and _is_computed(flow, n, replaced)}
            chosen |= {n: _place for n in flow.nodes if n.name == "scatter" and _is_placed(flow, n, replaced)}
            for node, rewrite in chosen.items():
                node.op.results[0].replace_all_uses_with(rewrite(node))
                node.op.erase()


def _is_computed(flow: Dataflow, node: Node, replaced: Container[int]) -> bool:
    """True if nothing is gained by an update in place: of no argument with a new value, and among the first of its tensor."""
    updated, before = _updated(flow, node)
    return updated not in replaced and sum(n.name == "slice_scatter" for n in before) < MOST


def _updated(flow: Dataflow, node: Node) -> tuple[int, list[Node]]:
    """What an update is of in the end, and the updates of that before it."""
    value, before = node.inputs[0], list[Node]()
    while (producer := flow.producer[value]) is not None and producer.name in UPDATES:
        value = producer.inputs[0]
        before.append(producer)
    return value, before


def _insert(node: Node) -> ir.Value:
    """The `slice_scatter` as an `insert`."""
    op, types = node.op, [r.type for r in node.op.results]
    made = create(registry("insert"), list(op.operands), node.attributes, types, op.location, ir.InsertionPoint(op))
    return made.results[0]


def _is_placed(flow: Dataflow, node: Node, replaced: Container[int]) -> bool:
    """True for few updates of each line; those that only overwrite an argument with a new value stay."""
    x, index = (flow.types[v] for v in node.inputs[:2])
    in_place = node.attributes["reduce"] == "none" and _updated(flow, node)[0] in replaced
    return placed(x, index, node.attributes) > 0 and not in_place


def _place(node: Node) -> ir.Value:
    """The `scatter` as one `place` after the other, in the order of its updates."""
    op, ip, attributes = node.op, ir.InsertionPoint(node.op), node.attributes
    value, index, src = op.operands
    shape, count = type_of(index).shape, placed(type_of(value), type_of(index), attributes)
    d = normalize_dim(attributes["dim"], len(shape))
    line = {"sizes": tuple(1 if k == d else n for k, n in enumerate(shape)), "steps": (1,) * len(shape)}
    kept = {name: attributes[name] for name in ("dim", "reduce", "index_error")}
    for update in range(count):
        starts = tuple(update if k == d else 0 for k in range(len(shape)))
        at, new = (build("slice", [v], {"starts": starts, **line}, op.location, ip).results[0] for v in (index, src))
        value = build("place", [value, at, new], kept, op.location, ip).results[0]
    return value
