"""Let kernels that differ only in where they begin to read an argument be one function."""

from __future__ import annotations

from collections.abc import Sequence

from mlir import ir

from ..find_ops import find_ops
from ..registry import register
from .dataflow import Dataflow, Node, functions, launched, read_function

_ALIKE = 3  # kernels: two are as likely halves of one tensor, whose places are worth knowing
_KINDS = ("loops", "matmul")

Place = tuple[int, int]  # a slice among the nodes of a kernel, and a dim of it


@register
def share_kernels(module: ir.Module) -> None:
    """Make one function of kernels that are equal but for where slices of arguments start: the steps of an unrolled loop.

    The starts become sizes that launches give. So the code of a step is compiled once and stays in caches. The last dim's
    stay as they are: they say which vectors are aligned.

    Before:
    ```mlir
    func.func @main(%x: tensor<4x8xf32>) -> (tensor<1x8xf32>, tensor<1x8xf32>, tensor<1x8xf32>) {
      %0 = "lamina.launch"(%x) {dims = [], kernel = @k0} : (tensor<4x8xf32>) -> tensor<1x8xf32>
      %1 = "lamina.launch"(%x) {dims = [], kernel = @k1} : (tensor<4x8xf32>) -> tensor<1x8xf32>
      %2 = "lamina.launch"(%x) {dims = [], kernel = @k2} : (tensor<4x8xf32>) -> tensor<1x8xf32>
      return %0, %1, %2 : tensor<1x8xf32>, tensor<1x8xf32>, tensor<1x8xf32> }
    func.func private @k0(%x: tensor<4x8xf32>) -> tensor<1x8xf32> attributes {lamina.kind = "loops", lamina.label = "exp", lamina.symbols = []} {
      %0 = "lamina.slice"(%x) {sizes = ["1", "8"], starts = ["0", "0"], steps = array<i64: 1, 1>} : (tensor<4x8xf32>) -> tensor<1x8xf32>
      %1 = "lamina.exp"(%0) : (tensor<1x8xf32>) -> tensor<1x8xf32>
      return %1 : tensor<1x8xf32> }
    func.func private @k1(%x: tensor<4x8xf32>) -> tensor<1x8xf32> attributes {lamina.kind = "loops", lamina.label = "exp", lamina.symbols = []} {
      %0 = "lamina.slice"(%x) {sizes = ["1", "8"], starts = ["1", "0"], steps = array<i64: 1, 1>} : (tensor<4x8xf32>) -> tensor<1x8xf32>
      %1 = "lamina.exp"(%0) : (tensor<1x8xf32>) -> tensor<1x8xf32>
      return %1 : tensor<1x8xf32> }
    func.func private @k2(%x: tensor<4x8xf32>) -> tensor<1x8xf32> attributes {lamina.kind = "loops", lamina.label = "exp", lamina.symbols = []} {
      %0 = "lamina.slice"(%x) {sizes = ["1", "8"], starts = ["3", "0"], steps = array<i64: 1, 1>} : (tensor<4x8xf32>) -> tensor<1x8xf32>
      %1 = "lamina.exp"(%0) : (tensor<1x8xf32>) -> tensor<1x8xf32>
      return %1 : tensor<1x8xf32> }
    ```
    After:
    ```mlir
    func.func @main(%x: tensor<4x8xf32>) -> (tensor<1x8xf32>, tensor<1x8xf32>, tensor<1x8xf32>) {
      %0 = "lamina.launch"(%x) {dims = ["0"], kernel = @k0} : (tensor<4x8xf32>) -> tensor<1x8xf32>
      %1 = "lamina.launch"(%x) {dims = ["1"], kernel = @k0} : (tensor<4x8xf32>) -> tensor<1x8xf32>
      %2 = "lamina.launch"(%x) {dims = ["3"], kernel = @k0} : (tensor<4x8xf32>) -> tensor<1x8xf32>
      return %0, %1, %2 : tensor<1x8xf32>, tensor<1x8xf32>, tensor<1x8xf32> }
    func.func private @k0(%x: tensor<4x8xf32>) -> tensor<1x8xf32> attributes {lamina.kind = "loops", lamina.label = "exp", lamina.symbols = ["d0"]} {
      %0 = "lamina.slice"(%x) {sizes = ["1", "8"], starts = ["d0", "0"], steps = array<i64: 1, 1>} : (tensor<4x8xf32>) -> tensor<1x8xf32>
      %1 = "lamina.exp"(%0) : (tensor<1x8xf32>) -> tensor<1x8xf32>
      return %1 : tensor<1x8xf32> }
    ```
    """
    alike: dict[tuple, list[Dataflow]] = {}
    for function in functions(module).values():
        if "lamina.kind" in function.attributes and _text(function, "lamina.kind") in _KINDS:
            flow = read_function(function)
            if places := _places(flow):
                alike.setdefault(_key(flow, places), []).append(flow)
    launches: dict[str, list[ir.Operation]] = {}
    for op in find_ops(module.operation, lambda op: op.name == "lamina.launch"):
        launches.setdefault(launched(op), []).append(op)
    with module.context:
        for kernels in alike.values():
            if len(kernels) >= _ALIKE:
                _share(kernels, launches)


def _places(flow: Dataflow) -> list[Place]:
    """Where slices of the kernel's arguments start at a number that could be another, the last dim aside."""
    found = []
    for node in flow.nodes:
        if node.name == "slice" and flow.producer[node.inputs[0]] is None:
            shape, starts, sizes = flow.types[node.inputs[0]].shape, node.attributes["starts"], node.attributes["sizes"]
            found += [
                (node.index, d) for d in range(len(shape) - 1) if isinstance(starts[d], int) and sizes[d] != shape[d]
            ]
    return found


def _key(flow: Dataflow, places: Sequence[Place]) -> tuple:
    """What alike kernels have in common: all but locations and these starts."""
    nodes = tuple((n.name, repr(_without(n, places)), n.operands) for n in flow.nodes)
    names = ("lamina.kind", "lamina.label", "lamina.symbols")
    attributes = tuple(str(flow.function.attributes[a]) for a in names)
    return tuple(flow.types), nodes, tuple(flow.returned), attributes


def _without(node: Node, places: Sequence[Place]) -> dict:
    """The op's attributes without the starts at `places`."""
    fields = dict(node.attributes)
    if dims := [d for n, d in places if n == node.index]:
        fields["starts"] = tuple(None if d in dims else start for d, start in enumerate(fields["starts"]))
    return fields


def _share(kernels: Sequence[Dataflow], launches: dict[str, list[ir.Operation]]) -> None:
    """Let launches of all `kernels` launch the first, with the starts in which they differ as sizes."""
    places = _places(kernels[0])
    starts = [[k.nodes[n].attributes["starts"][d] for n, d in places] for k in kernels]
    differ = [i for i in range(len(places)) if len({s[i] for s in starts}) > 1]
    kept = kernels[0].function
    symbols = list(ir.ArrayAttr(kept.attributes["lamina.symbols"]))
    for i in differ:
        number, d = places[i]
        op = kernels[0].nodes[number].op
        symbols.append(ir.StringAttr.get(f"d{len(symbols)}"))
        given = list(ir.ArrayAttr(op.attributes["starts"]))
        op.attributes["starts"] = ir.ArrayAttr.get([*given[:d], symbols[-1], *given[d + 1 :]])
    kept.attributes["lamina.symbols"] = ir.ArrayAttr.get(symbols)
    name = ir.FlatSymbolRefAttr.get(_text(kept, "sym_name"))
    for kernel, own in zip(kernels, starts):
        values = [ir.StringAttr.get(str(own[i])) for i in differ]
        for launch in launches.get(_text(kernel.function, "sym_name"), []):
            launch.attributes["kernel"] = name
            launch.attributes["dims"] = ir.ArrayAttr.get([*ir.ArrayAttr(launch.attributes["dims"]), *values])
        if kernel is not kernels[0]:
            kernel.function.erase()


def _text(function: ir.Operation, attribute: str) -> str:
    return ir.StringAttr(function.attributes[attribute]).value
