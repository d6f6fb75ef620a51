"""Simplify `lamina` ops one by one. Every rewrite keeps all values bit for bit, NaN, infinities and -0.0 included."""

from __future__ import annotations

from mlir import ir

from ..registry import register
from .canonicalize_attention import ATTENTION
from .canonicalize_values import VALUES
from .canonicalize_views import VIEWS
from .dataflow import entry_functions
from .dce import dce
from .rewriter import Patterns

_ALL = Patterns()
for _part in (VIEWS, VALUES, ATTENTION):
    for _name, _patterns in _part.by_name.items():
        _ALL.by_name.setdefault(_name, []).extend(_patterns)


@register
def canonicalize(module: ir.Module) -> None:
    """Remove ops that change nothing, merge chains of views and casts, and evaluate ops on `full` tensors.

    The rewrites are in `canonicalize_views.py`, `canonicalize_values.py` and `canonicalize_attention.py`.

    Before:
    ```mlir
    func.func @main(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
      %0 = "lamina.permute"(%x) {dims = array<i64: 1, 0>} : (tensor<2x3xf32>) -> tensor<3x2xf32>
      %1 = "lamina.permute"(%0) {dims = array<i64: 1, 0>} : (tensor<3x2xf32>) -> tensor<2x3xf32>
      %2 = "lamina.neg"(%1) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      return %2 : tensor<2x3xf32> }
    ```
    After:
    ```mlir
    func.func @main(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
      %0 = "lamina.neg"(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      return %0 : tensor<2x3xf32> }
    ```
    """
    changed = False
    with module.context:
        for function in entry_functions(module):
            changed |= _ALL.apply(function)
    if changed:
        dce(module)
