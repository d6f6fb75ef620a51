"""Short patches of an image as rows in scratch memory: a thread reads one patch.

    row[position, (t, c)] = x[n, p * stride + t * dilation - padding, c], 0 outside of the image

Its elements are at constant places `(t, c)`, so addresses differ by constants, and what is inside the image is asked once a
tap. Neighbouring threads have neighbouring positions, whose elements lie side by side in memory with channels first, and
`channels` apart with channels last. Four threads exchange vectors before they store them: one instruction then writes 64
bytes of each of eight rows, not 16 of each of 32, which take as long as whole sectors.
"""

from __future__ import annotations

from collections.abc import Sequence

from mlir import ir

from ....dialects import dims
from ....dialects.dims import Dim
from ...loops.index_algebra import Ranges
from ..gpu_kernel import GpuKernel, GpuStage
from ..hopper.ptx import Ptx
from ..thread_values import ThreadValues
from .conv_product import PatchRows

THREADS = 256
UNIT = 8  # elements of 16 bits that are stored at once
WORDS = 4  # of 32 bits in them
QUAD = 4


def emit_patch_rows(kernel: GpuKernel, image: PatchRows, rows: Dim, length: int, number: int) -> None:
    """Write `rows` patches of `length` elements to scratch buffer `number`, where they begin at multiples of UNIT."""
    stage = kernel.stage(THREADS, (dims.ceildiv(rows, THREADS), 1, 1))
    b = stage.b
    b.bind("place", stage.global_thread())
    b.bind("row", b.dim(dims.dim_min(dims.symbol("place"), rows - 1)))  # all threads exchange vectors
    ev = ThreadValues(stage, Ranges({"row": rows}), 1)
    zero = b.constant(0.0, ir.RankedTensorType(image.value.type).element_type)
    values = [_element(ev, image, k, zero) for k in range(length)]
    values += [zero] * (-length % UNIT)
    wide = ir.VectorType.get([UNIT], zero.type)
    vectors = [b.value("vector.from_elements", values[i : i + UNIT], wide) for i in range(0, len(values), UNIT)]
    whole = len(vectors) // QUAD * QUAD
    quad, first = dims.mod(dims.symbol("place"), QUAD), QUAD * dims.floordiv(dims.symbol("place"), QUAD)
    stores = []  # (row, vector of the row, value)
    for v in range(0, whole, QUAD):
        exchanged = _exchanged(Ptx(stage), vectors[v : v + QUAD], quad)
        stores += [(first + i, v + quad, value) for i, value in enumerate(exchanged)]
    stores += [(dims.symbol("place"), v, vectors[v]) for v in range(whole, len(vectors))]
    for row, v, value in stores:
        _store(stage, row, rows, value, number, UNIT * (len(vectors) * row + v))
    stage.finish()


def _element(ev: ThreadValues, image: PatchRows, k: int, zero: ir.Value) -> ir.Value:
    value, inside = image.clamped(ev, 0, dims.symbol("row"), k)
    if not inside:
        return value
    exists = ev.remember("inside", tuple(inside), lambda: ev.all_nonnegative(inside))
    return ev.b.select(exists, value, zero)


def _exchanged(ptx: Ptx, vectors: Sequence[ir.Value], quad: Dim) -> list[ir.Value]:
    """Of the vectors of four neighbouring threads those with this thread's number among them, in the threads' order."""
    b, words = ptx.b, ir.VectorType.get([WORDS], ptx.b.i32)
    split = [b.value("vector.bitcast", (v,), words) for v in vectors]
    number = ptx.i32(quad)
    columns = [ptx.quad_transpose([b.extract(s, w) for s in split], number) for w in range(WORDS)]
    made = [b.value("vector.from_elements", [column[i] for column in columns], words) for i in range(QUAD)]
    return [b.value("vector.bitcast", (m,), vectors[0].type) for m in made]


def _store(stage: GpuStage, row: Dim, rows: Dim, value: ir.Value, number: int, place: Dim) -> None:
    b = stage.b
    attributes = {"alignment": ir.IntegerAttr.get(b.i64, 2 * UNIT)}

    def store() -> list[ir.Value]:
        b.op("vector.store", (value, stage.scratch[number], b.dim(place)), attributes=attributes)
        return []

    inside = b.compare("slt", row, rows)
    b.branch(inside, [], store)
