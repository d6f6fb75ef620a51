"""Products of floats of 8 bits where no matrix instruction takes them: of operands widened on their way into tiles.

All values of the four formats are values of bf16, so products are exact and sums in f32, as they would be.
"""

from __future__ import annotations

from collections.abc import Collection

from mlir import ir

from ....dialects.dtypes import FLOAT8
from ....dialects.record import TensorType
from ...linalg.linalg_builder import LinalgBuilder
from ...linalg.linalg_tensor import Tensor
from ...loops.tensor_graph import TensorGraph

WIDE = "bf16"


def widen_float8(function: ir.Operation, kept: Collection[str] = ()) -> None:
    """Put casts to bf16 before a linalg-level kernel's `lamina.matmul` of floats of 8 bits, but not if both are `kept`.

    Before: `%y = "lamina.matmul"(%a, %b) : (tensor<8x64xf8E4M3FN>, tensor<64x8xf8E5M2>) -> tensor<8x8xf32>`
    After: the same of two `linalg.generic`, `(tensor<8x64xbf16>, tensor<64x8xbf16>) -> tensor<8x8xf32>`.
    """
    graph = TensorGraph(function)
    for op in [view.operation for view in graph.block.operations]:
        if op.name != "lamina.matmul" or _dtype(op.operands[0]) not in FLOAT8:
            continue
        if all(_dtype(operand) in kept for operand in op.operands) and graph.shape(op.operands[0])[-1] != 0:
            continue
        sizes = list(graph.block.arguments)[len(graph.inputs) :]
        builder = LinalgBuilder(ir.InsertionPoint(op), dict(zip(graph.symbols, sizes)), op.location)
        for number, operand in enumerate(list(op.operands)):
            narrow = Tensor(operand, TensorType(_dtype(operand), graph.shape(operand)))
            op.operands[number] = builder.cast(narrow, WIDE).value


def _dtype(value: ir.Value) -> str:
    return str(ir.RankedTensorType(value.type).element_type)
