"""Dead code elimination on `lamina` ops, which upstream passes do not know to be free of effects."""

from __future__ import annotations

from mlir import ir

from ...dialects.mlir_ops import PREFIX
from ..registry import register
from .dataflow import entry_functions, functions, launched
from .rewriter import is_unused


@register
def dce(module: ir.Module) -> None:
    """Erase ops whose results nobody reads, and kernels that nobody launches.

    Before:
    ```mlir
    func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
      %0 = "lamina.neg"(%x) : (tensor<2xf32>) -> tensor<2xf32>
      return %x : tensor<2xf32> }
    ```
    After:
    ```mlir
    func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> { return %x : tensor<2xf32> }
    ```
    """
    used: set[str] = set()
    for function in entry_functions(module):
        for view in reversed(list(function.regions[0].blocks[0].operations)):
            op = view.operation
            if op.name.startswith(PREFIX) and is_unused(op):
                op.erase()
            elif op.name == "lamina.launch":
                used.add(launched(op))
    for name, function in functions(module).items():
        if "lamina.kind" in function.attributes and name not in used and "main" in functions(module):
            function.erase()
