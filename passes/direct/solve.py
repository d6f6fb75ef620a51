"""Emit substitution: the rows of the result one after the other, each from `b` and the rows before it.

A work item is a strip of columns of one system. A row is summed in a small buffer, in f64 since errors of a row go into all
after it, and so that the loop over its columns is vectors: no store of it can be a row that is read.
"""

from __future__ import annotations

from ...dialects.dims import Dim, ceildiv, dim_min, product
from .kernel import DirectKernel, grain


def triangular_solve(k: DirectKernel) -> tuple[Dim, Dim]:
    """`y[i] = (b[i] - sum(a[i, j] y[j])) / a[i, i]` for the rows `j` that are known by then."""
    a, b = k.operands["a"], k.operands["b"]
    *batch, n, width = k.shape(b)
    upper, dtype = k.attributes["upper"], k.dtype(b)
    (y,) = k.outputs["y"]
    strips = ceildiv(width, k.strip)
    wide = "f32" if dtype in ("f16", "bf16") else "f64"
    sums = k.scratch(k.strip, wide)
    with k.loop(product(batch) * strips, k.begin, k.end) as item:
        system, strip = k.ranges.delinearize(item, (product(batch), strips))
        at, first = k.ranges.delinearize(system, batch), strip * k.strip
        columns = k.b.bind_fresh(k.b.dim(dim_min(k.strip, width - first)))

        def place(row: Dim, c: Dim, system: Dim = system, first: Dim = first) -> Dim:
            return (system * n + row) * width + first + c

        with k.loop(n) as turn:
            row = n - 1 - turn if upper else turn
            with k.loop(k.strip, 0, columns) as c:
                column = k.b.bind_fresh(k.b.dim(first + c))
                k.put(sums, c, k.s.cast(k.read(b, (*at, row, column)), wide))
            with k.loop(n, 0, k.b.dim(turn)) as known:
                other = n - 1 - known if upper else known
                factor = k.s.cast(k.read(a, (*at, row, other)), wide)
                with k.loop(k.strip, 0, columns) as c:
                    part = k.s.mul(factor, k.s.cast(k.load(y, place(other, c), dtype), wide))
                    k.put(sums, c, k.s.sub(k.load(sums, c, wide), part))
            pivot = None if k.attributes["unit"] else k.read(a, (*at, row, row))
            with k.loop(k.strip, 0, columns) as c:
                total = k.load(sums, c, wide)
                solved = total if pivot is None else k.s.div(total, k.s.cast(pivot, wide))
                k.put(y, place(row, c), k.s.cast(solved, dtype))
    return product(batch) * strips, grain(n * n * k.strip)
