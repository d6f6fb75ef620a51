"""Short patches of an image as rows in scratch memory: a thread writes one patch.

    row[position, (t, c)] = x[n, p * stride + t * dilation - padding, c], 0 outside of the image

Its elements are at constant places `(t, c)`, so addresses differ by constants, and what is inside the image is asked once a
tap. Neighbouring threads have neighbouring positions, whose elements lie side by side in memory with channels first, and
`channels` apart with channels last.
"""

from __future__ import annotations

from mlir import ir

from ....dialects import dims
from ...loops.index_algebra import Ranges
from ..gpu_kernel import GpuKernel
from ..thread_values import ThreadValues
from .conv_product import PatchRows

THREADS = 256
UNIT = 8  # elements of 16 bits that are stored at once


def emit_patch_rows(kernel: GpuKernel, image: PatchRows, rows: dims.Dim, length: int, number: int) -> None:
    """Write `rows` patches of `length` elements to scratch buffer `number`, where they begin at multiples of UNIT."""
    stage = kernel.stage(THREADS, (dims.ceildiv(rows, THREADS), 1, 1))
    b, row = stage.b, dims.symbol("row")
    b.bind("row", stage.global_thread())
    inside = b.value("arith.cmpi", (b.dim(row), b.dim(rows)), b.i1, predicate=b.number(2, b.i64))

    def write() -> list[ir.Value]:
        ev = ThreadValues(stage, Ranges({"row": rows}), 1)
        element = ir.RankedTensorType(image.value.type).element_type
        zero = b.constant(0.0, element)
        values = [_element(ev, image, k, zero) for k in range(length)]
        values += [zero] * (-length % UNIT)
        pitch, wide = len(values), ir.VectorType.get([UNIT], element)
        attributes = {"alignment": ir.IntegerAttr.get(b.i64, 2 * UNIT)}
        for first in range(0, pitch, UNIT):
            vector = b.value("vector.from_elements", values[first : first + UNIT], wide)
            place = b.dim(pitch * row + first)
            b.op("vector.store", (vector, stage.scratch[number], place), attributes=attributes)
        return []

    b.branch(inside, [], write)
    stage.finish()


def _element(ev: ThreadValues, image: PatchRows, k: int, zero: ir.Value) -> ir.Value:
    value, inside = image.clamped(ev, 0, dims.symbol("row"), k)
    if not inside:
        return value
    exists = ev.remember("inside", tuple(inside), lambda: ev.all_nonnegative(inside))
    return ev.b.value("arith.select", (exists, value, zero), zero.type)
