"""Emit kernels of kind `loops` and `concat`: from linalg on tensors to loops on flat buffers.

Each result (or group of results of one size) is a *nest*: loops over its positions in which the `Evaluator` inlines
everything the element depends on. Work items of all nests form one range that is cut into chunks:

    func.func @k(%in0: memref<?xf32>, ..., %out0: memref<?xf32>, %status: memref<?xi32>, %d0: index, %begin, %end)
"""

from __future__ import annotations

from mlir import ir

from ..registry import register
from .emit_nests import Emission
from .kernel_functions import kernels, loops_function
from .loops_builder import LoopsBuilder
from .plan_nests import plan_nests
from .tensor_graph import TensorGraph


@register
def emit_loops(module: ir.Module, vector_bits: int = 256) -> None:
    """Replace each linalg-level kernel by its loops-level form (docs/contracts.md, section 6).

    Before:
    ```mlir
    func.func private @k(%x: tensor<8xf32>) -> tensor<8xf32> { ... linalg.generic ... return %y : tensor<8xf32> }
    ```
    After:
    ```mlir
    func.func @k(%x: memref<?xf32>, %y: memref<?xf32>, %status: memref<?xi32>, %begin: index, %end: index)
      attributes {lamina.range = "8", lamina.grain = ...} { scf.for %i = %begin to %end ... }
    ```
    """
    with module.context, ir.Location.unknown():
        for op in kernels(module):
            _emit(op, vector_bits)


def _emit(op: ir.Operation, vector_bits: int) -> None:
    graph = TensorGraph(op)
    nests = plan_nests(graph)
    function, b, emission = begin(graph, vector_bits)
    emission.emit(nests)
    b.op("func.return", ())
    function.attributes["lamina.range"] = ir.StringAttr.get(str(emission.range))
    function.attributes["lamina.grain"] = ir.StringAttr.get(str(emission.grain))
    op.erase()


def begin(graph: TensorGraph, vector_bits: int) -> tuple[ir.Operation, LoopsBuilder, Emission]:
    """An empty loops-level function for `graph`, placed before it, and what writes into it."""
    op, tensors = graph.op, [*graph.inputs, *graph.results]
    function = loops_function(op, tensors, len(graph.symbols))
    block = function.regions[0].blocks[0]
    b = LoopsBuilder(block, op.location)
    arguments = list(block.arguments)
    for name, value in zip(graph.symbols, arguments[len(tensors) + 1 :]):
        b.bind(name, value)
    outputs = arguments[len(graph.inputs) : len(tensors)]
    begin, end = arguments[-2:]
    if "lamina.inplace" in op.attributes:  # of (operand, result) pairs, the operand's buffer is the result's too
        pairs = list(ir.DenseI64ArrayAttr(op.attributes["lamina.inplace"]))
        for operand, result in zip(pairs[::2], pairs[1::2]):
            outputs[result] = arguments[operand]
    inputs = dict(zip(graph.inputs, arguments))
    return function, b, Emission(graph, b, inputs, outputs, arguments[len(tensors)], begin, end, vector_bits)
