"""Move what depends on weights and constants alone into `@init`, which runs once per version of the weights."""

from __future__ import annotations

from mlir import ir

from ...dialects import dtypes
from ...dialects.dims import Expr
from ...dialects.mlir_ops import build, create
from ...dialects.mlir_types import mlir_type
from ...dialects.op import Op
from ...dialects.record import TensorType
from ..registry import register
from .dataflow import Dataflow, Node, functions, read_function
from .dce import dce
from .kernel_costs import is_cheap, is_creation, reads_buffer
from .stacked_weights import is_stacked

_LARGEST = 1 << 28  # bytes of one result that is kept between calls though no weight is as large


@register
def split_init(module: ir.Module, stacked: bool = False) -> None:
    """Split `@main`: ops on weights and literals go to `@init`, and `@main` reads their results as `lamina.persistent`.

    Views stay in `@main` (they are free), and so do cheap ops that would only make a buffer larger (casting a bf16 weight
    to f32, adding a row to a column, choosing few elements of zeros). Nothing with a symbolic size moves, because `@init` knows no sizes. `stacked`: weights
    one below another stay too where the product reads each where it lies (`stacked_weights.py`).

    Before:
    ```mlir
    func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
      %w = "lamina.weight"() {symbol = "w", shape = ["2"], dtype = f32} : () -> tensor<2xf32>
      %0 = "lamina.exp"(%w) : (tensor<2xf32>) -> tensor<2xf32>
      %1 = "lamina.mul"(%x, %0) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
      return %1 : tensor<2xf32> }
    ```
    After:
    ```mlir
    func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
      %0 = "lamina.persistent"() {index = 0 : i64, shape = ["2"], dtype = f32} : () -> tensor<2xf32>
      %1 = "lamina.mul"(%x, %0) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
      return %1 : tensor<2xf32> }
    func.func private @init() -> tensor<2xf32> {
      %w = "lamina.weight"() {symbol = "w", shape = ["2"], dtype = f32} : () -> tensor<2xf32>
      %0 = "lamina.exp"(%w) : (tensor<2xf32>) -> tensor<2xf32>
      return %0 : tensor<2xf32> }
    ```
    """
    entries = functions(module)
    if "main" not in entries or "init" in entries:
        return
    flow = read_function(entries["main"])
    kept = _Split(flow, stacked).choose()
    if not kept:
        return
    with module.context, ir.Location.unknown():
        _make_init(module, flow, kept)
        for index, v in enumerate(kept):
            node = flow.producer[v]
            assert node is not None
            type = flow.types[v]
            fields = {"index": index, "shape": type.shape, "dtype": type.dtype}
            stored = build("persistent", [], fields, node.op.location, ir.InsertionPoint(node.op))
            flow.values[v].replace_all_uses_with(stored.results[0])
    dce(module)


class _Split:
    def __init__(self, flow: Dataflow, stacked: bool):
        self.flow, self.stacked = flow, stacked
        self.early = flow.constant_nodes(lambda node: node.name != "persistent" and self._is_static(node))

    def choose(self) -> list[int]:
        """The values that `@init` computes for `@main`, in program order."""
        flow = self.flow
        kept: set[int] = set()
        seen: set[tuple[int, bool]] = set()
        # A result is the caller's to change, so it must not be a buffer that is kept between calls.
        returned = {self.flow.base(v) for v in flow.returned}
        todo = [(v, True) for v in flow.returned]
        for node in flow.nodes:
            if node not in self.early:
                todo += [(v, reads_buffer(node, i)) for i, v in enumerate(node.operands) if v is not None]
        while todo:
            item = todo.pop()
            node = flow.producer[item[0]]
            if item in seen or node is None or node not in self.early or node.name == "weight":
                continue
            seen.add(item)
            v, in_memory = item
            if node.category == "view":
                todo.append((node.inputs[0], in_memory))
            elif v in returned or self._stays(node, in_memory):
                todo += [(o, reads_buffer(node, i)) for i, o in enumerate(node.operands) if o is not None]
            else:
                kept.add(v)
        return sorted(kept)

    def _is_static(self, node: Node) -> bool:
        if any(_bytes(self.flow.types[r]) is None for r in node.results):
            return False
        for value in node.attributes.values():
            for part in value if isinstance(value, tuple) else (value,):
                if isinstance(part, Expr):
                    return False
        return True

    def _stays(self, node: Node, in_memory: bool) -> bool:
        """True if `@main` should rather compute `node` each time."""
        if self.stacked and is_stacked(self.flow, node):
            return True
        size = _bytes(self.flow.types[node.results[0]]) or 0
        if in_memory:
            return size > max(_LARGEST, self._operand_bytes(node))
        if is_creation(node, self.flow.types[node.results[0]]):
            return True
        return (is_cheap(node) or node.name == "place") and size > self._operand_bytes(node)

    def _operand_bytes(self, node: Node) -> int:
        """The bytes in memory that `node` reads, seen through views; values made from nothing take none."""
        total = 0
        for v in node.inputs:
            v = self.flow.base(v)
            producer = self.flow.producer[v]
            if producer is not None and not is_creation(producer, self.flow.types[v]):
                total += _bytes(self.flow.types[v]) or 0
        return total


def _bytes(type: TensorType) -> int | None:
    count = type.numel
    return count * dtypes.size(type.dtype) if isinstance(count, int) else None


def _make_init(module: ir.Module, flow: Dataflow, kept: list[int]) -> None:
    types = [mlir_type(flow.types[v]) for v in kept]
    init = ir.Operation.create(
        "func.func",
        attributes={
            "sym_name": ir.StringAttr.get("init"),
            "sym_visibility": ir.StringAttr.get("private"),
            "function_type": ir.TypeAttr.get(ir.FunctionType.get([], types)),
        },
        regions=1,
        ip=ir.InsertionPoint(module.body),
    )
    ip = ir.InsertionPoint(init.regions[0].blocks.append())
    needed = set(kept)
    for node in reversed(flow.nodes):
        if needed & set(node.results):
            needed.update(node.inputs)
    made: dict[int, ir.Value] = {}
    for node in flow.nodes:
        if needed & set(node.results):
            cls: type[Op] = node.cls  # type: ignore[assignment]
            operands = [None if v is None else made[v] for v in node.operands]
            results = [flow.types[r] for r in node.results]
            op = create(cls, operands, node.attributes, results, node.op.location, ip)
            made.update(zip(node.results, op.results))
    ir.Operation.create("func.return", operands=[made[v] for v in kept], ip=ip)
