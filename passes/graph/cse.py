"""Common subexpressions of `lamina` ops, which upstream passes do not know to be free of effects."""

from __future__ import annotations

from mlir import ir

from ...dialects.mlir_ops import PREFIX, op_class
from ..registry import register
from .dataflow import entry_functions

# `materialize` promises a buffer of its own.
_UNIQUE = frozenset({"lamina.materialize"})


@register
def cse(module: ir.Module) -> None:
    """Compute equal ops once. Ops are equal if their names, operands, attributes and result types are.

    Before:
    ```mlir
    func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
      %0 = "lamina.neg"(%x) : (tensor<2xf32>) -> tensor<2xf32>
      %1 = "lamina.neg"(%x) : (tensor<2xf32>) -> tensor<2xf32>
      %2 = "lamina.add"(%0, %1) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
      return %2 : tensor<2xf32> }
    ```
    After:
    ```mlir
    func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
      %0 = "lamina.neg"(%x) : (tensor<2xf32>) -> tensor<2xf32>
      %1 = "lamina.add"(%0, %0) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
      return %1 : tensor<2xf32> }
    ```
    """
    for function in entry_functions(module):
        seen: dict[tuple, ir.Operation] = {}
        for view in list(function.regions[0].blocks[0].operations):
            op = view.operation
            if not op.name.startswith(PREFIX) or op.name in _UNIQUE or op_class(op) is None:
                continue
            attributes = op.attributes
            key = (
                op.name,
                tuple(op.operands),
                tuple((attributes[i].name, attributes[i].attr) for i in range(len(attributes))),
                tuple(r.type for r in op.results),
            )
            first = seen.setdefault(key, op)
            if first is not op:
                for old, new in zip(op.results, first.results):
                    old.replace_all_uses_with(new)
                op.erase()
