"""Make loops of buffer copies and free temporaries; a step of the plain pipeline after bufferization."""

from __future__ import annotations

from mlir import ir

from ...dialects import dims
from ..find_ops import find_ops
from ..registry import register
from .kernel_functions import kernels

SMALL_BYTES = 64 * 1024  # a temporary up to this size goes on the stack


@register
def copies_to_linalg(module: ir.Module) -> None:
    """Make `memref.copy` a linalg.copy and free each temporary at the end of its block.

    Before:
    ```mlir
    %t = memref.alloc() : memref<4xf32>
    memref.copy %x, %t : memref<4xf32> to memref<4xf32>
    ```
    After:
    ```mlir
    %t = memref.alloca() : memref<4xf32>
    linalg.copy ins(%x : memref<4xf32>) outs(%t : memref<4xf32>)
    ```
    """
    with module.context, ir.Location.unknown():
        for op in kernels(module):
            _rewrite_buffers(op)


def _rewrite_buffers(function: ir.Operation) -> None:
    for op in find_ops(function, lambda op: op.name in ("memref.copy", "memref.alloc")):
        ip = ir.InsertionPoint(op)
        if op.name == "memref.copy":
            if op.operands[0] != op.operands[1]:
                _copy(op.operands[0], op.operands[1], ip)
            op.erase()
            continue
        memref = ir.MemRefType(op.results[0].type)
        block = op.block
        if memref.has_static_shape and block == function.regions[0].blocks[0] and _bytes(memref) <= SMALL_BYTES:
            segments = ir.DenseI32ArrayAttr.get([0, 0])
            alloca = ir.Operation.create(
                "memref.alloca", results=[memref], attributes={"operandSegmentSizes": segments}, ip=ip
            )
            op.results[0].replace_all_uses_with(alloca.results[0])
            op.erase()
            continue
        last = block.operations[len(block.operations) - 1]
        ir.Operation.create("memref.dealloc", operands=[op.results[0]], ip=ir.InsertionPoint(last))


def _bytes(memref: ir.MemRefType) -> int:
    element = memref.element_type
    width = 64 if isinstance(element, ir.IndexType) else element.width  # type: ignore[attr-defined]
    return dims.evaluate(dims.product(memref.shape), {}) * max(1, width // 8)


def _copy(source: ir.Value, target: ir.Value, ip: ir.InsertionPoint) -> None:
    memref = ir.MemRefType(target.type)
    identity = ir.AffineMapAttr.get(ir.AffineMap.get_identity(memref.rank))
    op = ir.Operation.create(
        "linalg.generic",
        operands=[source, target],
        attributes={
            "indexing_maps": ir.ArrayAttr.get([identity, identity]),
            "iterator_types": ir.ArrayAttr.get([ir.Attribute.parse("#linalg.iterator_type<parallel>")] * memref.rank),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 1]),
        },
        regions=1,
        ip=ip,
    )
    element = memref.element_type
    block = op.regions[0].blocks.append(element, element, arg_locs=[ir.Location.unknown()] * 2)
    ir.Operation.create("linalg.yield", operands=[block.arguments[0]], ip=ir.InsertionPoint(block))
