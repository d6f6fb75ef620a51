"""Compute linear layers of one input together: the query, key and value projections of attention are one product."""

from __future__ import annotations

from mlir import ir

from ...dialects.mlir_ops import build
from ...dialects.mlir_types import python_location
from ..registry import register
from .dataflow import Dataflow, Node, functions, read_function


@register
def merge_linears(module: ir.Module) -> None:
    """Merge linear layers with one input and constant weights, whose results are only read through views.

    The weights are put together once, in `@init`. A layer with an epilogue stays alone: fused, it saves more.

    Before:
    ```mlir
    func.func @main(%x: tensor<3x8xf32>) -> (tensor<4x3xf32>, tensor<6x3xf32>) {
      %a = "lamina.weight"() {symbol = "a", shape = ["4", "8"], dtype = f32} : () -> tensor<4x8xf32>
      %b = "lamina.weight"() {symbol = "b", shape = ["6", "8"], dtype = f32} : () -> tensor<6x8xf32>
      %0 = "lamina.linear"(%x, %a) : (tensor<3x8xf32>, tensor<4x8xf32>) -> tensor<3x4xf32>
      %1 = "lamina.linear"(%x, %b) : (tensor<3x8xf32>, tensor<6x8xf32>) -> tensor<3x6xf32>
      %2 = "lamina.permute"(%0) {dims = array<i64: 1, 0>} : (tensor<3x4xf32>) -> tensor<4x3xf32>
      %3 = "lamina.permute"(%1) {dims = array<i64: 1, 0>} : (tensor<3x6xf32>) -> tensor<6x3xf32>
      return %2, %3 : tensor<4x3xf32>, tensor<6x3xf32> }
    ```
    After:
    ```mlir
    func.func @main(%x: tensor<3x8xf32>) -> (tensor<4x3xf32>, tensor<6x3xf32>) {
      %a = "lamina.weight"() {symbol = "a", shape = ["4", "8"], dtype = f32} : () -> tensor<4x8xf32>
      %b = "lamina.weight"() {symbol = "b", shape = ["6", "8"], dtype = f32} : () -> tensor<6x8xf32>
      %w = "lamina.concat"(%a, %b) {dim = 0 : i64} : (tensor<4x8xf32>, tensor<6x8xf32>) -> tensor<10x8xf32>
      %y = "lamina.linear"(%x, %w) : (tensor<3x8xf32>, tensor<10x8xf32>) -> tensor<3x10xf32>
      %0 = "lamina.slice"(%y) {starts = ["0", "0"], sizes = ["3", "4"], steps = array<i64: 1, 1>} : (tensor<3x10xf32>) -> tensor<3x4xf32>
      %1 = "lamina.slice"(%y) {starts = ["0", "4"], sizes = ["3", "6"], steps = array<i64: 1, 1>} : (tensor<3x10xf32>) -> tensor<3x6xf32>
      %2 = "lamina.permute"(%0) {dims = array<i64: 1, 0>} : (tensor<3x4xf32>) -> tensor<4x3xf32>
      %3 = "lamina.permute"(%1) {dims = array<i64: 1, 0>} : (tensor<3x6xf32>) -> tensor<6x3xf32>
      return %2, %3 : tensor<4x3xf32>, tensor<6x3xf32> }
    ```
    """
    main = functions(module).get("main")
    if main is None:
        return
    flow = read_function(main)
    groups: dict[tuple, list[Node]] = {}
    for node in flow.nodes:
        if node.name == "linear" and _is_movable(flow, node):
            x, w, bias = node.operands
            groups.setdefault((x, flow.types[w].dtype, bias is None), []).append(node)  # type: ignore[index]
    with module.context:
        for nodes in groups.values():
            first = nodes[0].index
            known = [n for n in nodes if all(_made_at(flow, v) < first for v in n.inputs[1:])]
            if len(known) > 1:
                _merge(flow, known)


def _is_movable(flow: Dataflow, node: Node) -> bool:
    """True if the weight and bias are plain weights, and the result is read through views alone."""
    result = node.results[0]
    weights = (flow.producer[v] for v in node.inputs[1:])
    if not all(p is not None and p.name == "weight" for p in weights) or result in flow.returned:
        return False
    readers = flow.users[result]
    return bool(readers) and all(n.category in ("view", "attention") for n in readers)


def _made_at(flow: Dataflow, value: int) -> int:
    producer = flow.producer[value]
    return -1 if producer is None else producer.index


def _merge(flow: Dataflow, nodes: list[Node]) -> None:
    """Replace `nodes` by one linear layer at the place of the first, and slices of its result."""
    first = nodes[0].op
    ip, location = ir.InsertionPoint(first), python_location(first.location)
    operands = [[flow.values[v] for v in n.inputs] for n in nodes]
    stacked = [build("concat", part, {"dim": 0}, location, ip).results[0] for part in list(zip(*operands))[1:]]
    bias = stacked[1] if len(stacked) > 1 else None
    y = build("linear", [operands[0][0], stacked[0], bias], {}, location, ip).results[0]
    start = 0
    for node in nodes:
        shape = flow.types[node.results[0]].shape
        starts = (0,) * (len(shape) - 1) + (start,)
        fields = {"starts": starts, "sizes": shape, "steps": (1,) * len(shape)}
        part = build("slice", [y], fields, python_location(node.op.location), ip).results[0]
        flow.values[node.results[0]].replace_all_uses_with(part)
        start += shape[-1]  # type: ignore[assignment]
    for node in nodes:
        node.op.erase()
