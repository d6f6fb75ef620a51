"""Give a linalg-level kernel its loops-level signature; the first step of the plain pipeline."""

from __future__ import annotations

from mlir import ir

from ..registry import register
from .kernel_functions import kernels, strings
from .loops_builder import LoopsBuilder


@register
def outputs_to_arguments(module: ir.Module) -> None:
    """Give a linalg-level kernel its loops-level signature: results become written memref arguments.

    Before:
    ```mlir
    func.func private @k(%x: tensor<4xf32>) -> tensor<4xf32> { ... return %y : tensor<4xf32> }
    ```
    After:
    ```mlir
    func.func @k(%x: tensor<4xf32>, %out: memref<4xf32>, %status: memref<?xi32>, %begin: index, %end: index) {
      ... bufferization.materialize_in_destination %y in restrict writable %out ... return }
    ```
    """
    with module.context, ir.Location.unknown():
        for op in kernels(module):
            _signature(op)


def _signature(op: ir.Operation) -> None:
    block = op.regions[0].blocks[0]
    symbols = len(strings(op.attributes["lamina.symbols"]))
    old = list(block.arguments)
    inputs, sizes = old[: len(old) - symbols], old[len(old) - symbols :]
    if "lamina.inplace" in op.attributes:
        for operand in list(ir.DenseI64ArrayAttr(op.attributes["lamina.inplace"]))[::2]:
            _keep_old(block, inputs[operand])
    end = block.operations[len(block.operations) - 1]
    results = list(end.operands)
    b = LoopsBuilder(block, op.location)
    outputs = [
        ir.MemRefType.get(ir.RankedTensorType(r.type).shape, ir.RankedTensorType(r.type).element_type) for r in results
    ]
    dynamic = ir.ShapedType.get_dynamic_size()
    types = [*outputs, ir.MemRefType.get([dynamic], b.i32), *[s.type for s in sizes], b.index, b.index]
    new = [block.add_argument(t, op.location) for t in types]
    for size, replacement in zip(sizes, new[len(outputs) + 1 :]):
        size.replace_all_uses_with(replacement)
    for _ in sizes:
        block.erase_argument(len(inputs))
    ip = ir.InsertionPoint(end)
    for result, output in zip(results, new):
        ir.Operation.create(
            "bufferization.materialize_in_destination",
            operands=[result, output],
            attributes={"restrict": ir.UnitAttr.get(), "writable": ir.UnitAttr.get()},
            ip=ip,
        )
    ir.Operation.create("func.return", ip=ip)
    end.erase()
    attributes = op.attributes
    arguments = [a.type for a in block.arguments]
    attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(arguments, []))
    # kernels never write their inputs: without this, bufferization assumes that it may
    fixed, free = ir.DictAttr.get({"bufferization.writable": ir.BoolAttr.get(False)}), ir.DictAttr.get({})
    attributes["arg_attrs"] = ir.ArrayAttr.get([fixed] * len(inputs) + [free] * (len(arguments) - len(inputs)))
    for key in ("sym_visibility", "res_attrs"):
        if key in attributes:
            del attributes[key]
    attributes["lamina.range"] = ir.StringAttr.get("1")
    attributes["lamina.grain"] = ir.IntegerAttr.get(b.i64, 1)


def _keep_old(block: ir.Block, argument: ir.Value) -> None:
    """Copy an argument that a result overwrites: the loops of one op may write it before those of another have read it."""
    made = ir.Operation.create(
        "bufferization.alloc_tensor",
        results=[argument.type],
        operands=[argument],
        attributes={"operandSegmentSizes": ir.DenseI32ArrayAttr.get([0, 1, 0])},
        ip=ir.InsertionPoint.at_block_begin(block),
        loc=argument.owner.owner.location,
    )
    argument.replace_all_uses_except(made.results[0], made)
