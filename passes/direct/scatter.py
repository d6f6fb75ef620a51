"""Emit scatter: a copy of `x`, then the updates in order.

Positions that differ in a dim other than `dim` never meet, so they are the work items: `outer × inner` columns along
`dim`. Each chunk copies its columns and applies their updates one after the other, whatever the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from mlir import ir

from ...dialects.dims import Dim, ceildiv, dim_max, dim_min, floordiv, product
from ...dialects.status import GATHER_OUT_OF_RANGE, INDEX_OUT_OF_RANGE
from ..linalg.scalar_core import Scalar, highest, kind, lowest
from .kernel import DirectKernel, Scalars, around, grain


def scatter(k: DirectKernel) -> tuple[Dim, Dim]:
    """`y[…, index[i], …] = combine(y[…, index[i], …], src[i])`."""
    x, index, src = (k.operands[n] for n in ("x", "index", "src"))
    shape, updates = k.shape(x), k.shape(index)
    before, n, after = around(shape, k.attributes["dim"])
    outer, inner = product(before), product(after)
    d, reduce, dtype = len(before), k.attributes["reduce"], k.dtype(x)
    count = updates[d] if shape else 1
    same = k.same_buffer(x, "y")
    (y,) = k.outputs["y"]
    with segments(k, outer, inner) as (o, low, high):
        front = k.ranges.delinearize(o, before)

        def place(i: Dim, c: Dim) -> tuple[tuple[Dim, ...], Dim]:
            """The index of element `i` of column `c`, and its flat position in `x`."""
            back = k.ranges.delinearize(c, after)
            return ((*front, i, *back) if shape else ()), (o * n + i) * inner + c

        def copy() -> None:
            with k.loop(n) as i, k.loop(inner, low, high) as c:
                at, flat = place(i, c)
                k.put(y, flat, k.read(x, at))

        unless(k, same, copy)
        if not k.attributes["include_self"]:
            with k.loop(count) as m, k.loop(inner, low, high) as c:
                _update(
                    k,
                    index,
                    place(m, c)[0],
                    d,
                    shape,
                    updates,
                    lambda at, c=c: k.put(y, place(at, c)[1], _identity(k, reduce, dtype)),
                )

        def write(at: Dim, here: tuple[Dim, ...], c: Dim) -> None:
            flat = place(at, c)[1]
            new = k.read(src, here)
            if reduce != "none":
                new = combine(k.s, reduce, k.load(y, flat, dtype), new)
            k.put(y, flat, new)

        whole = all(a == u for a, u in zip(after, updates[d + 1 :])) if shape else False
        with k.loop(count) as m:
            if whole and not k.depends(index, lambda c: place(m, c)[0]):
                # one position for the whole row: it is checked once, and the row is written by a plain loop
                def write_row(at: Dim, m: Dim = m) -> None:
                    with k.loop(inner, low, high) as c:
                        write(at, place(m, c)[0], c)

                _update(k, index, place(m, 0)[0], d, shape, updates, write_row)
            else:
                with k.loop(inner, low, high) as c:
                    here = place(m, c)[0]
                    _update(k, index, here, d, shape, updates, lambda at, here=here, c=c: write(at, here, c))
    return outer * inner, grain(n + count * 2)


def _update(
    k: DirectKernel,
    index: ir.Value,
    here: Sequence[Dim],
    d: int,
    shape: Sequence[Dim],
    updates: Sequence[Dim],
    write: Callable[[Dim], None],
) -> None:
    """Call `write(position)` for update `here` if it exists and its position is in range."""
    inside: ir.Value | None = None
    for axis, (size, limit) in enumerate(zip(shape, updates)):
        if axis != d and size != limit:
            ok = k.s.lt(Scalar(k.b.dim(here[axis]), "index"), Scalar(k.b.dim(limit), "index")).value
            inside = ok if inside is None else k.b.value("arith.andi", (inside, ok), k.b.i1)

    def checked() -> None:
        check = INDEX_OUT_OF_RANGE if k.attributes["index_error"] else GATHER_OUT_OF_RANGE
        at, ok = k.valid(k.read(index, here), shape[d] if shape else 1, wrap=False, check=check)
        k.when(ok, lambda: write(at))

    if inside is None:
        checked()
    else:
        k.when(inside, checked)


@contextmanager
def segments(k: DirectKernel, outer: Dim, inner: Dim) -> Iterator[tuple[Dim, ir.Value, ir.Value]]:
    """The chunk `begin .. end` of `outer × inner` items as loops: yields `o` and the part `low .. high` of `inner`."""
    b = k.b
    begin, end, width = b.bind_fresh(k.begin), b.bind_fresh(k.end), dim_max(1, inner)
    first, last = b.dim(floordiv(begin, width)), b.dim(ceildiv(end, width))
    with k.loop(outer, first, last) as o:
        low = b.dim(dim_max(begin - o * inner, 0))
        high = b.dim(dim_min(end - o * inner, inner))
        yield o, low, high


def unless(k: DirectKernel, condition: ir.Value | None, then: Callable[[], None]) -> None:
    """`if not condition: then()`; a condition that is None never holds."""
    if condition is None:
        then()
        return
    k.when(k.s.bitwise_not(Scalar(condition, "bool")).value, then)


def combine(s: Scalars, reduce: str, old: Scalar, new: Scalar) -> Scalar:
    """An element and one update of it."""
    match reduce:
        case "add":
            return s.add(old, new)
        case "mul":
            return s.mul(old, new)
        case "amax":
            return s.maximum(old, new)
        case "amin":
            return s.minimum(old, new)
    return new


def _identity(k: DirectKernel, reduce: str, dtype: str) -> Scalar:
    """The value that leaves the first update as it is."""
    values = {"add": 0, "mul": 1, "amax": lowest(dtype), "amin": highest(dtype)}
    value = values.get(reduce, 0)
    return k.s.const(float(value) if kind(dtype) == "float" else value, dtype)
