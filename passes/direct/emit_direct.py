"""Emit the kernels of direct ops (sort, scan, scatter …), each by its own function: one table, by the op's name.

An emitter is a function of a `DirectKernel` that writes the body for work items `begin .. end` and returns the number of
items and the grain. A module holds one kernel; if its root was lowered to linalg after all, the loop emitter takes it.
"""

from __future__ import annotations

from collections.abc import Callable

from mlir import ir

from ...dialects.dims import Dim
from ...dialects.mlir_ops import op_class
from ..loops.emit_loops import emit_loops
from ..loops.kernel_functions import kernels
from ..loops.tensor_graph import TensorGraph
from ..registry import register
from .embedding_bag import embedding_bag
from .index_put import index_put
from .kernel import DirectKernel
from .scan import cummax, cummin, cumprod, cumsum, logcumsumexp
from .scatter import scatter
from .search import searchsorted
from .slice_scatter import slice_scatter
from .solve import triangular_solve
from .sort import sort
from .topk import topk

Emitter = Callable[[DirectKernel], tuple[Dim, Dim]]
EMITTERS: dict[str, Emitter] = {
    f.__name__: f
    for f in (
        cummax,
        cummin,
        cumprod,
        cumsum,
        embedding_bag,
        index_put,
        logcumsumexp,
        scatter,
        searchsorted,
        slice_scatter,
        sort,
        topk,
        triangular_solve,
    )
}


@register
def emit_direct(module: ir.Module) -> None:
    """Replace each kernel around a direct op by its loops-level form (docs/contracts.md, section 6).

    Before:
    ```mlir
    func.func private @k(%x: tensor<8xf32>) -> tensor<8xf32> {
      %y = "lamina.cumsum"(%x) {dim = 0 : i64, lamina.operand_dtypes = ["f32"]} : (tensor<8xf32>) -> tensor<8xf32>
      return %y : tensor<8xf32> }
    ```
    After:
    ```mlir
    func.func @k(%x: memref<?xf32>, %y: memref<?xf32>, %status: memref<?xi32>, %begin: index, %end: index)
      attributes {lamina.range = "1", lamina.grain = "2500"} { scf.for %row = %begin to %end { scf.for ... } }
    ```
    """
    with module.context, ir.Location.unknown():
        for op in kernels(module):
            found = find_root(op, "direct emitter for")
            if found is None:
                emit_loops(module)
                return
            root, emit = found
            kernel = DirectKernel(TensorGraph(op), root)
            kernel.close(*emit(kernel))


def find_root(kernel: ir.Operation, missing: str) -> tuple[ir.Operation, Emitter] | None:
    """The direct op of a kernel and what emits it; None if it was lowered to linalg after all. `missing`: what there is none of."""
    ops = kernel.regions[0].blocks[0].operations
    roots = [o.operation for o in ops if o.operation.name.startswith("lamina.")]
    if not roots:
        return None
    cls = op_class(roots[0])
    if len(roots) != 1 or cls is None or cls.name not in EMITTERS:
        raise NotImplementedError(f"no {missing} {', '.join(r.name for r in roots)}")
    return roots[0], EMITTERS[cls.name]
