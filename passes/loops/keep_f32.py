"""`numerics="fast"`: what is computed in f32 stays f32 until it is stored."""

from __future__ import annotations

from mlir import ir

from ..find_ops import find_ops
from ..lane_types import element_of
from ..registry import register


@register
def keep_f32(module: ir.Module) -> None:
    """Replace `extf(truncf(x))` by `x` where an f32 is rounded to f16 or bf16 only to be widened again.

    Eager rounds between any two ops, and so do we, unless `numerics="fast"`. A value that is stored, or leaves for
    another kernel, is rounded as before.

    Before:
    ```mlir
    func.func @f(%x: f32) -> f32 {
      %h = arith.truncf %x : f32 to bf16
      %y = arith.extf %h : bf16 to f32
      return %y : f32
    }
    ```
    After:
    ```mlir
    func.func @f(%x: f32) -> f32 {
      return %x : f32
    }
    ```
    """
    for op in find_ops(module.operation, lambda op: op.name == "arith.extf"):
        rounding = op.operands[0].owner
        if not isinstance(rounding, (ir.Operation, ir.OpView)) or rounding.operation.name != "arith.truncf":
            continue
        value = rounding.operation.operands[0]
        if value.type == op.results[0].type and str(element_of(value.type)) == "f32":
            op.results[0].replace_all_uses_with(value)
            op.erase()
            if not list(rounding.operation.results[0].uses):
                rounding.operation.erase()
