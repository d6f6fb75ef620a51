"""Give buffers that are reshaped their sizes and strides themselves; a step of the plain pipeline after bufferisation."""

from __future__ import annotations

from mlir import ir

from ..find_ops import find_ops
from ..registry import register
from .kernel_functions import kernels


@register
def expansions_to_casts(module: ir.Module) -> None:
    """Make `memref.expand_shape` a `memref.reinterpret_cast` where a group has several sizes that are not known.

    `expand-strided-metadata` takes one such size a group, and ends the process otherwise.

    Before:
    ```mlir
    %y = memref.expand_shape %x [[0, 1]] output_shape [%m, %n] : memref<?xf32> into memref<?x?xf32>
    ```
    After:
    ```mlir
    %base, %offset, %size, %stride = memref.extract_strided_metadata %x : memref<?xf32> -> memref<f32>, index, index, index
    %outer = arith.muli %stride, %n : index
    %y = memref.reinterpret_cast %base to offset: [0], sizes: [%m, %n], strides: [%outer, 1] : memref<f32> to memref<?x?xf32>
    ```
    """
    with module.context, ir.Location.unknown():
        for function in kernels(module):
            for op in find_ops(function, _is_unknown):
                _replace(op)


def _is_unknown(op: ir.Operation) -> bool:
    """True for an expansion of one size to several that are not known."""
    if op.name != "memref.expand_shape":
        return False
    result = ir.MemRefType(op.results[0].type)
    return any(sum(map(result.is_dynamic_dim, group)) > 1 for group in _groups(op))


def _groups(op: ir.Operation) -> list[list[int]]:
    return [[ir.IntegerAttr(d).value for d in ir.ArrayAttr(g)] for g in ir.ArrayAttr(op.attributes["reassociation"])]


def _replace(op: ir.Operation) -> None:
    ip, index, dynamic = ir.InsertionPoint(op), ir.IndexType.get(), ir.ShapedType.get_dynamic_size()
    source, result = ir.MemRefType(op.operands[0].type), ir.MemRefType(op.results[0].type)

    def make(name: str, results: list[ir.Type], operands: list[ir.Value], **attributes: ir.Attribute) -> ir.Operation:
        return ir.Operation.create(name, results=results, operands=operands, attributes=attributes, ip=ip)

    def number(n: int) -> ir.Value:
        return make("arith.constant", [index], [], value=ir.IntegerAttr.get(index, n)).results[0]

    base = ir.MemRefType.get([], source.element_type, memory_space=source.memory_space)
    types = [base, *[index] * (1 + 2 * source.rank)]
    buffer, offset, *rest = make("memref.extract_strided_metadata", types, [op.operands[0]]).results
    given = iter(list(op.operands)[1:])
    sizes = [next(given) if result.is_dynamic_dim(d) else number(n) for d, n in enumerate(result.shape)]
    strides: list[ir.Value] = [offset] * result.rank
    for group, stride in zip(_groups(op), rest[source.rank :]):
        for d in reversed(group):
            strides[d] = stride
            stride = make("arith.muli", [index], [stride, sizes[d]]).results[0]
    known, start = result.get_strides_and_offset()
    parts = [([start], [offset]), (list(result.shape), sizes), (known, strides)]
    unknown = [[v for n, v in zip(numbers, values) if n == dynamic] for numbers, values in parts]
    names = ("static_offsets", "static_sizes", "static_strides")
    cast = make(
        "memref.reinterpret_cast", [result], [buffer, *(v for values in unknown for v in values)],
        operandSegmentSizes=ir.DenseI32ArrayAttr.get([1, *map(len, unknown)]),
        **{name: ir.DenseI64ArrayAttr.get(numbers) for name, (numbers, _) in zip(names, parts)},
    )  # fmt: skip
    op.results[0].replace_all_uses_with(cast.results[0])
    op.erase()
