"""The second stage of a product whose K is split: the parts' sums added in order, and the epilogue.

A thread adds a vector of columns of one row: `sums[part, row, column]` for all parts.
"""

from __future__ import annotations

from mlir import ir

from ....dialects import dims
from ...loops.index_algebra import Ranges
from ..gpu_kernel import GpuKernel
from ..thread_values import ThreadValues, divisible
from .epilogue import Epilogue
from .problem import Product
from .wgmma import sums_pitch

THREADS = 256


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
        epilogue = Epilogue(stage, p)
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
        if epilogue.halves:
            element = epilogue.element
            type = ir.VectorType.get([width], element) if width > 1 else element
            value = b.value("arith.truncf", (value,), type)
        epilogue.write(ev, batch, row, w, value)
        return []

    less = b.value("arith.cmpi", (b.dim(flat), b.dim(total)), b.i1, predicate=b.number(2, b.i64))
    b.branch(less, [], inside)
    stage.finish()
