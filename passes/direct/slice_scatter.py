"""Emit slice_scatter: a copy of `x` (none if written in place) with a strided block replaced.

A work item is a row, the last dim of `x`. Every row is copied and takes what the block has for it.
"""

from __future__ import annotations

from ...dialects.dims import Dim, product
from ..linalg.scalar_core import Scalar
from .kernel import DirectKernel, grain
from .scatter import unless


def slice_scatter(k: DirectKernel) -> tuple[Dim, Dim]:
    """`y[starts + steps · i] = src[i]`."""
    x, src = k.operands["x"], k.operands["src"]
    shape, block = k.shape(x), k.shape(src)
    starts, steps = k.attributes["starts"], k.attributes["steps"]
    same = k.same_buffer(x, "y")
    (y,) = k.outputs["y"]
    if not shape:
        with k.loop(1, k.begin, k.end):
            k.put(y, 0, k.read(src, ()))
        return 1, 1
    rows, width = product(shape[:-1]), shape[-1]
    with k.loop(rows, k.begin, k.end) as row:
        front = k.ranges.delinearize(row, shape[:-1])

        def copy() -> None:
            with k.loop(width) as c:
                k.put(y, row * width + c, k.read(x, (*front, c)))

        unless(k, same, copy)
        s = k.s
        inside = s.const(True, "bool")
        source: list[Dim] = []
        for at, start, step, size, limit in zip(front, starts, steps, block, shape):
            if size == limit and start == 0 and step == 1:
                source.append(at)
                continue
            steps_in = s.div(Scalar(k.b.dim(at - start), "index"), step, rounding="floor")
            hit = s.eq(s.add(s.mul(steps_in, step), Scalar(k.b.dim(start), "index")), Scalar(k.b.dim(at), "index"))
            ok = s.bitwise_and(s.ge(steps_in, 0), s.lt(steps_in, Scalar(k.b.dim(size), "index")))
            inside = s.bitwise_and(inside, s.bitwise_and(hit, ok))
            source.append(k.b.bind_fresh(steps_in.value))

        def write() -> None:
            with k.loop(block[-1]) as c:
                k.put(y, row * width + starts[-1] + steps[-1] * c, k.read(src, (*source, c)))

        k.when(inside.value, write)
    return rows, grain(width)
