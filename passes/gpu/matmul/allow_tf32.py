"""`numerics="tf32"`: f32 products of tensor cores are of operands that are rounded to TF32, as torch's `allow_tf32` has it."""

from __future__ import annotations

from mlir import ir

from ...loops.kernel_functions import kernels
from ...registry import register


@register
def allow_tf32(module: ir.Module) -> None:
    """Mark kernels as ones whose f32 products may be computed in TF32: 10 fraction bits of each operand, sums in f32.

    Before:
    ```mlir
    func.func @f(%x: tensor<4x4xf32>) -> tensor<4x4xf32> attributes {lamina.kind = "matmul"} {
      return %x : tensor<4x4xf32>
    }
    ```
    After:
    ```mlir
    func.func @f(%x: tensor<4x4xf32>) -> tensor<4x4xf32> attributes {lamina.kind = "matmul", lamina.tf32} {
      return %x : tensor<4x4xf32>
    }
    ```
    """
    with module.context:
        for op in kernels(module):
            op.attributes["lamina.tf32"] = ir.UnitAttr.get()
