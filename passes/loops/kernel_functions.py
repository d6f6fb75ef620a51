"""Kernel functions: those in a module, their attributes, and the function at the loops level that takes the place of one."""

from __future__ import annotations

from collections.abc import Sequence

from mlir import ir


def kernels(module: ir.Module) -> list[ir.Operation]:
    """The kernel functions of a module: those with `lamina.kind`."""
    return [op.operation for op in module.body.operations if "lamina.kind" in op.attributes]


def strings(attribute: ir.Attribute) -> list[str]:
    """An array of strings as Python strings."""
    return [ir.StringAttr(a).value for a in ir.ArrayAttr(attribute)]


def loops_function(op: ir.Operation, tensors: Sequence[ir.Value], symbols: int) -> ir.Operation:
    """An empty function with the loops-level signature (contracts, section 6), before kernel `op` and named like it.

    Its arguments are flat buffers for `tensors`, the status, so many symbols, and the range of work items.
    """
    dynamic, index = ir.ShapedType.get_dynamic_size(), ir.IndexType.get()
    elements = [ir.RankedTensorType(v.type).element_type for v in tensors]
    flat = [ir.MemRefType.get([dynamic], e) for e in (*elements, ir.IntegerType.get_signless(32))]
    types = [*flat, *[index] * (symbols + 2)]
    kept = ("sym_name", "lamina.kind", "lamina.symbols", "lamina.label", "lamina.arg_dims", "lamina.result_dims")
    attributes = {k: op.attributes[k] for k in kept if k in op.attributes}
    attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(types, []))
    made = ir.Operation.create("func.func", attributes=attributes, regions=1, loc=op.location, ip=ir.InsertionPoint(op))
    made.regions[0].blocks.append(*types, arg_locs=[op.location] * len(types))
    return made
