"""One kernel from `lamina` ops to linalg on tensors, by each op's own `lower` (docs/contracts.md §5)."""

from __future__ import annotations

from typing import Any

from mlir import ir

from ...dialects.mlir_ops import create
from ...dialects.op import Op
from ...dialects.record import TensorType
from ..graph.dataflow import Dataflow, Node, functions, read_function
from ..registry import register
from .ir_cache import IrCache
from .linalg_builder import LinalgBuilder
from .linalg_tensor import Tensor

# Ops of these categories have emitters of their own, which read the op itself.
_EMITTED = ("matmul", "conv", "attention", "direct")


class LoweringError(ValueError):
    """An op that has no lowering to linalg, or whose lowering gives something else than the op promises."""


@register
def lower_to_linalg(module: ir.Module, keep_root: bool = False, wide_sums: bool = False) -> None:
    """Lower the ops of every kernel. With `keep_root`, matmul, convolution, attention and direct ops stay as they are
    (on tensors without encodings, with the dtypes of their operands as an attribute). With `wide_sums`, float sums accumulate in f64: for straight sequential loops.

    Before:
    ```mlir
    func.func private @k(%x: tensor<?xf32, ["d0"]>) -> tensor<?xf32, ["d0"]>
        attributes {lamina.kind = "loops", lamina.symbols = ["d0"]} {
      %0 = "lamina.neg"(%x) : (tensor<?xf32, ["d0"]>) -> tensor<?xf32, ["d0"]>
      return %0 : tensor<?xf32, ["d0"]> }
    ```
    After:
    ```mlir
    #map = affine_map<(d0) -> (d0)>
    func.func private @k(%x: tensor<?xf32>, %d0: index) -> tensor<?xf32>
        attributes {lamina.kind = "loops", lamina.symbols = ["d0"], lamina.arg_dims = [["d0"]], lamina.arg_dtypes = ["f32"],
                    lamina.result_dims = [["d0"]], lamina.result_dtypes = ["f32"]} {
      %0 = tensor.empty(%d0) : tensor<?xf32>
      %1 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel"]}
          ins(%x : tensor<?xf32>) outs(%0 : tensor<?xf32>) {
      ^bb0(%in: f32, %out: f32):
        %2 = arith.negf %in : f32
        linalg.yield %2 : f32
      } -> tensor<?xf32>
      return %1 : tensor<?xf32> }
    ```
    """
    with module.context, ir.Location.unknown():
        cache = IrCache(module.context)
        for function in functions(module).values():
            if "lamina.kind" in function.attributes and "lamina.arg_dims" not in function.attributes:
                _lower_kernel(read_function(function), cache, keep_root, wide_sums)


def _lower_kernel(flow: Dataflow, cache: IrCache, keep_root: bool, wide_sums: bool) -> None:
    old = flow.function
    count = len(old.regions[0].blocks[0].arguments)
    symbols = [ir.StringAttr(a).value for a in ir.ArrayAttr(old.attributes["lamina.symbols"])]
    index = ir.IndexType.get()
    inputs = [*map(cache.tensor, flow.types[:count]), *[index] * len(symbols)]
    results = [flow.types[v] for v in flow.returned]
    signature = ir.FunctionType.get(inputs, [cache.tensor(t) for t in results])
    attributes: dict[str, ir.Attribute] = {a.name: a.attr for a in _named(old)}
    attributes |= {
        "function_type": ir.TypeAttr.get(signature),
        "lamina.arg_dims": _dims(flow.types[:count]),
        "lamina.result_dims": _dims(results),
        "lamina.arg_dtypes": ir.ArrayAttr.get([ir.StringAttr.get(t.dtype) for t in flow.types[:count]]),
        "lamina.result_dtypes": ir.ArrayAttr.get([ir.StringAttr.get(t.dtype) for t in results]),
    }
    # Created in place of the old function, under its name once that is gone.
    new = ir.Operation.create(
        "func.func", attributes=attributes, regions=1, ip=ir.InsertionPoint(old), loc=old.location
    )
    block = new.regions[0].blocks.append(*inputs, arg_locs=[ir.Location.unknown()] * len(inputs))
    ip = ir.InsertionPoint(block)
    arguments = list(block.arguments)
    builder = LinalgBuilder(ip, dict(zip(symbols, arguments[count:])), ir.Location.unknown(), cache, wide_sums)
    values: dict[int, Tensor] = {i: Tensor(arguments[i], flow.types[i]) for i in range(count)}
    for node in flow.nodes:
        builder.location = node.op.location
        lowered = _keep(node, values, flow, builder) if _stays(node, keep_root) else _lower(node, values, flow, builder)
        values.update(zip(node.results, lowered))
    ir.Operation.create("func.return", operands=[values[v].value for v in flow.returned], ip=ip)
    old.erase()


def _stays(node: Node, keep_root: bool) -> bool:
    return keep_root and node.category in _EMITTED


def _lower(node: Node, values: dict[int, Tensor], flow: Dataflow, builder: LinalgBuilder) -> tuple[Tensor, ...]:
    cls = node.cls
    if cls is None or cls.lower is None:
        raise LoweringError(f"{node.op.name} at {builder.location}: it has no lowering to linalg")
    operands = cls.bind([None if v is None else values[v] for v in node.operands])
    made: Any = cls.lower(builder, **operands, **node.attributes)
    lowered = (made,) if cls.single_result else tuple(made)
    for tensor, r in zip(lowered, node.results, strict=True):
        if tensor.type != flow.types[r]:
            raise LoweringError(
                f"lamina.{node.name} at {builder.location}: its lowering gives {tensor.type}, the op {flow.types[r]}"
            )
    return lowered


def _keep(node: Node, values: dict[int, Tensor], flow: Dataflow, builder: LinalgBuilder) -> tuple[Tensor, ...]:
    cls: type[Op] = node.cls  # type: ignore[assignment]
    types = [flow.types[r] for r in node.results]
    dtypes = [flow.types[v].dtype for v in node.operands if v is not None]
    op = create(
        cls,
        [None if v is None else values[v].value for v in node.operands],
        node.attributes,
        [builder.cache.tensor(t) for t in types],
        builder.location,
        builder.ip,
    )
    op.attributes["lamina.operand_dtypes"] = ir.ArrayAttr.get([ir.StringAttr.get(d) for d in dtypes])
    return tuple(Tensor(value, type) for value, type in zip(op.results, types))


def _named(function: ir.Operation) -> list[ir.NamedAttribute]:
    attributes = function.attributes
    return [attributes[i] for i in range(len(attributes))]


def _dims(types: list[TensorType]) -> ir.ArrayAttr:
    return ir.ArrayAttr.get([ir.ArrayAttr.get([ir.StringAttr.get(str(d)) for d in t.shape]) for t in types])
