"""Emit searchsorted: a binary search per value."""

from __future__ import annotations

from ...dialects.dims import Dim, product
from ..linalg.scalar_core import Scalar
from .kernel import DirectKernel, grain


def searchsorted(k: DirectKernel) -> tuple[Dim, Dim]:
    """How many edges are before each value; a work item is one value."""
    edges, values, right = k.operands["edges"], k.operands["values"], bool(k.attributes["right"])
    shape, n = k.shape(values), k.shape(edges)[-1]
    count = product(shape)
    with k.loop(count, k.begin, k.end) as item:
        at = k.ranges.delinearize(item, shape)
        row = at[:-1] if len(k.shape(edges)) > 1 else ()
        value = k.read(values, at)

        def step(low: Scalar, high: Scalar) -> list[Scalar]:
            s = k.s
            middle = s.emit("arith.shrui", (s.add(low, high), s.const(1, "index")), "index")
            edge = k.read(edges, (*row, k.b.bind_fresh(middle.value)))
            s = k.s
            # not (edge >= value) rather than edge < value: a NaN comes after every edge
            stop = s.gt(edge, value) if right else s.ge(edge, value)
            return [s.select(stop, low, s.add(middle, 1)), s.select(stop, middle, high)]

        start = [k.s.const(0, "index"), Scalar(k.b.dim(n), "index")]
        found, _ = k.while_loop(start, lambda low, high: k.s.lt(low, high), step)
        k.store("y", item, k.s.cast(found, "i64"))
    return count, grain(32)
