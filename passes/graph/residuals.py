"""Products and convolutions of GPUs that may write their result over a tensor they add: the sum of a residual block.

Such a kernel reads the tensor for each element of the result where it writes that element, in the same thread or, before
lanes exchange what they have, in the same warp. So both may be one buffer, and an activation as large as the result is not
there a second time. The code is the same either way, but may not promise that they are apart: `lamina.aliased` on the kernel.

Not products of many rows that are no whole tiles: their loads are in branches, and where they may not pass the stores before them
each waits for memory (ViT-B/16, 32 x 197 rows: 3.0 ms instead of 2.4 on an H200; ResNet-50's 128 x n rows take as long as before).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from mlir import ir

from .dataflow import Dataflow, Node, launched, read_function

ALIASED = "lamina.aliased"  # on a kernel: the operands whose buffer may be that of its result
KINDS = frozenset({"matmul", "conv"})  # kernels whose emitters write through one epilogue
TILE = 128  # rows of most tiles of products
MANY_ROWS = 8 * TILE


def added_operands(flow: Dataflow, kernels: Mapping[str, ir.Operation]) -> list[tuple[Node, int]]:
    """The launches in `@main` whose first result may lie over an operand, with the operand's number."""
    found, known = [], dict[str, list[int]]()
    for node in flow.nodes:
        if node.name != "launch":
            continue
        name = launched(node.op)
        if name not in known:
            known[name] = _elementwise_operands(read_function(kernels[name]))
        bases = [None if v is None else flow.base(v) for v in node.operands]
        found += [(node, operand) for operand in known[name] if bases.count(bases[operand]) == 1]
    return found


def mark_aliased(kernel: ir.Operation, operand: int) -> None:
    """Say on a kernel that the buffer of an operand may be its result's."""
    known = list(ir.DenseI64ArrayAttr(kernel.attributes[ALIASED])) if ALIASED in kernel.attributes else []
    kernel.attributes[ALIASED] = ir.DenseI64ArrayAttr.get(sorted({*known, operand}))


def _elementwise_operands(kernel: Dataflow) -> list[int]:
    """The arguments of a kernel of one result that are read at the index that is written, and nowhere else."""
    if ir.StringAttr(kernel.function.attributes["lamina.kind"]).value not in KINDS or len(kernel.returned) != 1:
        return []
    (result,) = kernel.returned
    if _has_part_tiles(kernel, result):
        return []
    there = {result}  # values whose elements, row by row, are the result's
    for node in reversed(kernel.nodes):
        made = there.intersection(node.results)
        if made and _is_elementwise(node):
            same = kernel.types[next(iter(made))].numel
            there.update(v for v in node.inputs if kernel.types[v].numel == same)
    type = kernel.types[result]
    return [
        v
        for v in sorted(there)
        if kernel.producer[v] is None
        and (kernel.types[v].dtype, kernel.types[v].numel) == (type.dtype, type.numel)
        and _is_read_there(kernel, v, there)
    ]


def _has_part_tiles(kernel: Dataflow, result: int) -> bool:
    """True for many rows (of the result's last dim) of which a tile has fewer than others."""
    sizes = kernel.types[result].shape[:-1]
    rows = math.prod(n for n in sizes if isinstance(n, int))
    return all(isinstance(n, int) for n in sizes) and rows >= MANY_ROWS and rows % TILE != 0


def _is_read_there(kernel: Dataflow, value: int, there: set[int]) -> bool:
    """True if all that is computed of `value` has its elements, row by row, and is in `there`: nothing of it is multiplied."""
    return all(
        _is_elementwise(n) and there.issuperset(n.results) and _is_read_there(kernel, n.results[0], there)
        for n in kernel.users[value]
    )


def _is_elementwise(node: Node) -> bool:
    """True if element `i` of the result, row by row, is made of elements `i` of the operands that have as many."""
    return node.name == "reshape" or node.category == "pointwise" and node.name != "place"
