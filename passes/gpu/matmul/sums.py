"""Products whose K is split: each part's sums go to scratch memory, and a second stage adds them in order.

    sums[part, batch, row, column]          rows of `sums_pitch` elements

A thread of the second stage adds a vector of columns of one row and writes what `outputs` makes of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from mlir import ir

from ....dialects import dims
from ....dialects.dims import Dim
from ...loops.index_algebra import Ranges
from ..gpu_kernel import GpuKernel
from ..hopper.ptx import Ptx, round_up
from ..lane_places import divisible
from ..thread_values import ThreadValues
from .epilogue import Limits
from .outputs import Outputs
from .problem import Product

THREADS = 256


def sums_pitch(product: Product) -> Dim:
    """Elements from row to row of the partial sums: aligned, whatever N is."""
    return round_up(product.n, 8)


def keep_sums(
    ptx: Ptx, product: Product, sums: int, part: Dim, place: tuple[Dim, Dim, Dim], values: Sequence[ir.Value],
    rows: Limits, columns: Limits,
) -> None:  # fmt: skip
    """Write one thread's sums of a part of K to scratch buffer `sums`; who holds which is said at `Epilogue.fragment`."""
    b, p = ptx.b, product
    batch, row, column = place
    width = 2 if divisible(p.n, 2) else 1
    for j in range(len(values) // 4):
        at = column + 8 * j + 2 * dims.symbol("quad")
        for h in range(2):
            line = (part * p.batches + batch) * p.m + row + 8 * h
            for e in range(0, 2, width):
                first = 4 * j + 2 * h + e
                conditions = ptx.within(row + 8 * h, rows.first, rows.end)
                conditions += ptx.within(at + e, columns.first, columns.end)

                def write(offset: Dim = line * sums_pitch(p) + at + e, first: int = first) -> list[ir.Value]:
                    buffer = ptx.stage.scratch[sums]
                    if width == 1:
                        b.op("memref.store", (values[first], buffer, b.dim(offset)))
                        return []
                    pair = b.value("vector.from_elements", values[first : first + 2], ir.VectorType.get([2], b.f32))
                    alignment = ir.IntegerAttr.get(b.i64, 8)
                    b.op("vector.store", (pair, buffer, b.dim(offset)), attributes={"alignment": alignment})
                    return []

                b.under(conditions, write)


def emit_sums(kernel: GpuKernel, product: Product, sums: int, splits: int) -> None:
    """Write the outputs from the sums of `splits` parts in scratch buffer `sums`."""
    p = product
    width = next(v for v in (4, 2, 1) if divisible(p.n, v))
    vectors = dims.floordiv(p.n, width)
    total = p.batches * p.m * vectors
    stage = kernel.stage(THREADS, (dims.ceildiv(total, THREADS), 1, 1))
    b = stage.b
    b.bind("flat", stage.global_thread())
    flat = dims.symbol("flat")
    line = dims.floordiv(flat, vectors)
    b.bind("batch", b.dim(dims.floordiv(line, p.m)))
    b.bind("row", b.dim(dims.mod(line, p.m)))
    b.bind("w", b.dim(dims.mod(flat, vectors)))
    batch, row, w = (dims.symbol(x) for x in ("batch", "row", "w"))
    pitch = sums_pitch(p)

    def inside() -> list[ir.Value]:
        outputs = Outputs(stage, p)
        ev = ThreadValues(stage, Ranges({"batch": p.batches, "row": p.m, "w": vectors}), width)
        column = ev.flat(w)
        parts = [
            ev.load_at(stage.scratch[sums], ((s * p.batches + batch) * p.m + row) * pitch + column)
            for s in range(splits)
        ]
        value = parts[0]
        for part in parts[1:]:
            value = b.value("arith.addf", (value, part), value.type)
        if p.bias is not None:
            bias = ev.vector(p.bias_at(ev, batch, row, column))
            if bias.type != value.type:
                bias = b.value("arith.extf", (bias,), value.type)
            value = b.value("arith.addf", (value, bias), value.type)
        if outputs.halves:
            element = outputs.element
            type = ir.VectorType.get([width], element) if width > 1 else element
            value = b.value("arith.truncf", (value,), type)
        outputs.write(ev, batch, row, w, value)
        return []

    less = b.compare("slt", flat, total)
    b.branch(less, [], inside)
    stage.finish()
