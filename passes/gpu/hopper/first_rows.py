"""While the launch before ends: blocks that wait for it ask for the rows that they will read first.

A kernel's first blocks are on their multiprocessors before the launch before has ended (overlap_launches.py), when memory
has little to do. They may not read yet; but a prefetch into the L2 cache gives no value, and all writes of a GPU meet
there, so it may come before the wait whatever is being written:

    if thread == 0 and block < a few hundred: cp.async.bulk.prefetch.L2 [the rows of the block]
    griddepcontrol.wait

On an H200, in graphs of four calls: sums of the rows of 8192 x 4096 bf16 18.0 -> 16.8 µs, layer_norm 34.8 -> 34.1, of 4097
columns 36.5 -> 35.6 (4 MB: 35.8), cross_entropy 18.8 -> 18.5 (8 and 17 MB: 18.6), of 1024 columns 19.2 -> 19.1 (19.2, 19.9).
"""

from __future__ import annotations

from collections.abc import Sequence

from mlir import ir

from ....dialects import dims
from ..gpu_kernel import GpuStage, element_bytes

MOST = 16 << 20  # bytes in all: what all blocks read that run at once
MOST_REDUCED = (
    4 << 20
)  # of rows that are only reduced: the launch before is often the end of a reduction, and has to read, too
LINE = 16  # bytes, whose multiples a bulk prefetch takes
LEAST_BYTES = 32 << 20  # of an input: a smaller one that was written last is in the L2 cache


def fetch_first_rows(
    stage: GpuStage, buffers: Sequence[ir.Value], elements: int, blocks: int, most: int = MOST
) -> None:
    """Block `i < blocks` will read the elements from `i * elements` on, as many, of `buffers`; wait for the launch before.

    `most` bytes are asked for.
    """
    b = stage.b
    addresses = [stage.address(buffer) for buffer in buffers]
    sizes = [elements * element_bytes(ir.MemRefType(buffer.type).element_type) for buffer in buffers]
    among = b.compare("ult", stage.block(), min(max(1, most // sum(sizes)), blocks))
    first = b.value("arith.andi", (b.compare("eq", stage.thread(), 0), among), b.i1)

    def fetch() -> list[ir.Value]:
        for address, size in zip(addresses, sizes):
            _prefetch(stage, address, size)
        return []

    b.branch(first, [], fetch)
    b.op("nvvm.griddepcontrol", (), attributes={"kind": b.attribute("#nvvm<grid_dep_action wait>")})


def are_large(type: ir.Type, count: dims.Dim) -> bool:
    """Are `count` elements more than a cache keeps?"""
    return isinstance(count, int) and count * element_bytes(type) >= LEAST_BYTES


def _prefetch(stage: GpuStage, address: ir.Value, size: int) -> None:
    """Ask for the whole lines among the `size` bytes that are this block's."""
    b = stage.b
    begin = b.value(
        "arith.muli", (b.value("arith.index_cast", (stage.block(),), b.i64), b.constant(size, b.i64)), b.i64
    )
    if size % LINE:
        begin = b.value("arith.addi", (begin, b.constant(LINE - 1, b.i64)), b.i64)
        begin = b.value("arith.andi", (begin, b.constant(-LINE, b.i64)), b.i64)
    at = b.value(
        "llvm.getelementptr",
        (address, begin),
        address.type,
        elem_type=ir.TypeAttr.get(ir.IntegerType.get_signless(8)),
        rawConstantIndices=ir.DenseI32ArrayAttr.get([-(2**31)]),
        noWrapFlags=b.number(0, b.i32),
    )
    attributes = {
        "asm_string": ir.StringAttr.get("cp.async.bulk.prefetch.L2.global [$0], $1;"),
        "constraints": ir.StringAttr.get("l,r"),
        "asm_dialect": ir.IntegerAttr.get(b.i64, 0),
        "has_side_effects": ir.UnitAttr.get(),
    }
    b.op("llvm.inline_asm", (at, b.constant(whole_lines(size), b.i32)), [], attributes)


def whole_lines(size: int) -> int:
    """The bytes of the lines that are whole among `size` bytes, wherever those begin."""
    return size if size % LINE == 0 else (size - (LINE - 1)) // LINE * LINE
