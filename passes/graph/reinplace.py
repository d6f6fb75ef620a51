"""Let launches write over buffers that nobody reads any more, so that a cache is updated and never copied."""

from __future__ import annotations

from collections.abc import Container, Mapping

from mlir import ir

from ..registry import register
from .dataflow import Dataflow, Node, functions, launched, read_function
from .pointwise_updates import mark_kernels, pointwise_updates
from .residuals import added_operands, mark_aliased

# Ops whose result is their first operand with some elements written: `y = x; y[…] = src`.
UPDATES = frozenset({"slice_scatter", "index_put", "scatter"})


@register
def reinplace(module: ir.Module, pointwise: bool = False, residuals: bool = False) -> None:
    """Mark launches of updates (`slice_scatter`, `index_put`, `scatter`) that may write over their first operand.

    With `pointwise`, also those of pointwise kernels that make an argument's new value from its old one; with `residuals`,
    those of products that add a tensor where they write (`residuals.py`), if it is the result of another launch.

    The operand is an argument that gets a new value after the call (`lamina.mutates`), or a result of another launch;
    no later launch reads it, and it is not returned. What is written over an argument is returned as its new value or
    not at all. Launches that read the operand and do not need the update are moved before it.

    Before:
    ```mlir
    func.func @main(%cache: tensor<8x4xf32>, %x: tensor<1x4xf32>) -> tensor<8x4xf32>
        attributes {lamina.arg_names = ["cache", "x"], lamina.mutates = ["cache"]} {
      %0 = "lamina.launch"(%cache, %x) {kernel = @k0, dims = []}
          : (tensor<8x4xf32>, tensor<1x4xf32>) -> tensor<8x4xf32>
      return %0 : tensor<8x4xf32> }
    func.func private @k0(%x: tensor<8x4xf32>, %s: tensor<1x4xf32>) -> tensor<8x4xf32>
        attributes {lamina.kind = "slice_scatter", lamina.label = "slice_scatter", lamina.symbols = []} {
      %0 = "lamina.slice_scatter"(%x, %s) {starts = ["3", "0"], steps = array<i64: 1, 1>}
          : (tensor<8x4xf32>, tensor<1x4xf32>) -> tensor<8x4xf32>
      return %0 : tensor<8x4xf32> }
    ```
    After:
    ```mlir
    func.func @main(%cache: tensor<8x4xf32>, %x: tensor<1x4xf32>) -> tensor<8x4xf32>
        attributes {lamina.arg_names = ["cache", "x"], lamina.mutates = ["cache"]} {
      %0 = "lamina.launch"(%cache, %x) {kernel = @k0, dims = [], inplace = array<i64: 0, 0>}
          : (tensor<8x4xf32>, tensor<1x4xf32>) -> tensor<8x4xf32>
      return %0 : tensor<8x4xf32> }
    func.func private @k0(%x: tensor<8x4xf32>, %s: tensor<1x4xf32>) -> tensor<8x4xf32>
        attributes {lamina.kind = "slice_scatter", lamina.label = "slice_scatter", lamina.symbols = []} {
      %0 = "lamina.slice_scatter"(%x, %s) {starts = ["3", "0"], steps = array<i64: 1, 1>}
          : (tensor<8x4xf32>, tensor<1x4xf32>) -> tensor<8x4xf32>
      return %0 : tensor<8x4xf32> }
    ```
    """
    entries = functions(module)
    if "main" not in entries:
        return
    kernels = {name: f for name, f in entries.items() if "lamina.kind" in f.attributes}
    flow = _read_first(entries["main"], kernels, pointwise)
    replaced = replaced_arguments(flow)
    overwritten: set[int] = set()
    with module.context:
        for node, operand, result in _updates(flow, kernels, pointwise):
            source = node.operands[operand]
            assert source is not None
            if source in overwritten or not _is_free(flow, source, replaced) or _later_readers(flow, node, source):
                continue
            others = node.op.attributes["inplace"] if "inplace" in node.op.attributes else ()
            node.op.attributes["inplace"] = ir.DenseI64ArrayAttr.get([*others, operand, result])
            overwritten.add(source)
        marked = dict.fromkeys(node for node, *_ in pointwise_updates(flow, kernels)) if pointwise else ()
        mark_kernels(module, [node.op for node in marked if "inplace" in node.op.attributes])
        if residuals:
            _overwrite_residuals(flow, kernels, replaced, overwritten)


def _overwrite_residuals(
    flow: Dataflow, kernels: dict[str, ir.Operation], replaced: Container[int], overwritten: set[int]
) -> None:
    """Mark launches whose result may lie over a tensor that they add, and their kernels.

    `overwritten` are the values whose buffers have another value after a launch that is marked already.
    """
    updated = {r for node in flow.nodes if "inplace" in node.op.attributes for r in node.results}
    for node, operand in added_operands(flow, kernels):
        source = node.operands[operand]
        assert source is not None
        own = flow.producer[source] is not None and source not in overwritten | updated
        if not own or not _is_free(flow, source, replaced) or _later_readers(flow, node, source):
            continue
        if "inplace" not in node.op.attributes:
            node.op.attributes["inplace"] = ir.DenseI64ArrayAttr.get([operand, 0])
            mark_aliased(kernels[launched(node.op)], operand)
            overwritten.add(source)


def _read_first(function: ir.Operation, kernels: dict[str, ir.Operation], pointwise: bool) -> Dataflow:
    """The function after the launches that read what an update may overwrite have been moved before it, where they can be."""
    flow = read_function(function)
    replaced = replaced_arguments(flow)
    for op, operand in [(node.op, operand) for node, operand, _ in _updates(flow, kernels, pointwise)]:
        node = next(n for n in flow.nodes if n.op == op)
        source = node.operands[operand]
        assert source is not None
        late = _later_readers(flow, node, source) if _is_free(flow, source, replaced) else set()
        for n in reversed(flow.nodes[node.index + 1 :]):  # what they need goes with them
            if n in late:
                late.update(m for v in n.inputs if (m := flow.producer[v]) is not None and m.index >= node.index)
        if not late or node in late:
            continue
        for n in sorted(late, key=lambda n: n.index):
            n.op.move_before(op)
        flow = read_function(function)
    return flow


def _updates(flow: Dataflow, kernels: dict[str, ir.Operation], pointwise: bool) -> list[tuple[Node, int, int]]:
    """The launches of updates whose results may lie over an operand, with the operand's number and the result's."""
    found = pointwise_updates(flow, kernels) if pointwise else []
    for node in flow.nodes:
        if node.name == "launch":
            pair = _update(kernels[launched(node.op)])
            if pair is not None:
                found.append((node, *pair))
    below = {node.results[result]: node.operands[operand] for node, operand, result in found}
    new_values = replaced_arguments(flow)
    return [(node, operand, r) for node, operand, r in found if not _is_lost(flow, below, new_values, node.results[r])]


def _is_lost(flow: Dataflow, below: Mapping[int, int | None], new_values: Mapping[int, int], result: int) -> bool:
    """True if `result` is returned, but would lie in the buffer of an argument that gets another value after the call.

    `below` maps the result of each update to its operand, `new_values` arguments to what they get.
    """
    source = result
    while (operand := below.get(source)) is not None:
        source = operand
    if source not in new_values:
        return False
    views = _views_of(flow, result)
    returned = [v for v in flow.returned if v in views]
    return returned != ([result] if new_values[source] == result else [])


def _update(kernel: ir.Operation) -> tuple[int, int] | None:
    """The operand and result of a kernel that is one update of an argument, not of a view of it."""
    if ir.StringAttr(kernel.attributes["lamina.kind"]).value not in UPDATES:
        return None
    flow = read_function(kernel)
    (root,) = (n for n in flow.nodes if n.name in UPDATES)
    target = root.operands[0]
    assert target is not None
    if flow.producer[target] is not None or any(target in n.inputs for n in flow.nodes if n is not root):
        return None
    if root.inputs.count(target) > 1 or root.results[0] not in flow.returned:
        return None
    return target, flow.returned.index(root.results[0])


def replaced_arguments(flow: Dataflow) -> dict[int, int]:
    """The arguments whose buffers get another value after the call, whatever happens to them before, and that value."""
    attributes = flow.function.attributes
    if "lamina.mutates" not in attributes:
        return {}
    names = [ir.StringAttr(a).value for a in ir.ArrayAttr(attributes["lamina.arg_names"])]
    mutates = [ir.StringAttr(a).value for a in ir.ArrayAttr(attributes["lamina.mutates"])]
    return {names.index(m): v for m, v in zip(mutates, flow.returned) if m in names}


def _is_free(flow: Dataflow, source: int, replaced: Container[int]) -> bool:
    """True if the buffer of `source` may be overwritten once it has been read."""
    producer = flow.producer[source]
    if source not in replaced if producer is None else producer.name != "launch":
        return False  # the caller's, a weight, a persistent buffer, or a view of something
    return not _views_of(flow, source) & set(flow.returned)


def _later_readers(flow: Dataflow, node: Node, source: int) -> set[Node]:
    """The launches after `node` that read the buffer of `source`."""
    users = (n for v in _views_of(flow, source) for n in flow.users[v])
    return {n for n in users if n.index > node.index and n.category != "view"}


def _views_of(flow: Dataflow, value: int) -> set[int]:
    found = {value}
    for node in flow.nodes:
        if node.category == "view" and node.inputs[0] in found:
            found.update(node.results)
    return found
