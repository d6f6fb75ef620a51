"""Emit scatter: a copy of `x`, then the updates in order.

Positions that differ in a dim other than `dim` never meet, so they are the work items: `outer × inner` columns along
`dim`. Each chunk copies its columns and applies their updates one after the other, whatever the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from mlir import ir

from ...dialects.dims import Dim, ceildiv, dim_max, dim_min, floordiv, product
from ...dialects.status import GATHER_OUT_OF_RANGE, INDEX_OUT_OF_RANGE
from ..linalg.scalar_core import Scalar, highest, kind, lowest
from .kernel import DirectKernel, Scalars, around, grain


def scatter(k: DirectKernel) -> tuple[Dim, Dim]:
    """`y[…, index[i], …] = combine(y[…, index[i], …], src[i])`."""
    shape = k.shape(k.operands["x"])
    before, n, after = around(shape, k.attributes["dim"])
    outer, inner = product(before), product(after)
    count = k.shape(k.operands["index"])[len(before)] if shape else 1
    same = k.same_buffer(k.operands["x"], "y")
    with segments(k, outer, inner) as (o, low, high):
        columns = _Columns(k, before, n, after, inner, o, low, high)
        unless(k, same, columns.copy)
        if not k.attributes["include_self"]:
            with k.loop(count) as m, columns.each() as c:
                columns.update(m, c, lambda at, c=c: columns.clear(at, c))
        with k.loop(count) as m:
            if columns.share_a_position(m):
                # it is checked once, and the row is written by a plain loop
                def write_row(at: Dim, m: Dim = m) -> None:
                    with columns.each() as c:
                        columns.write(at, m, c)

                columns.update(m, 0, write_row)
            else:
                with columns.each() as c:
                    columns.update(m, c, lambda at, m=m, c=c: columns.write(at, m, c))
    return outer * inner, grain(n + count * 2)


@dataclass(frozen=True)
class _Columns:
    """Columns `low … high` of `inner` at place `o` of the dims before: each has `n` elements of `x` and their updates."""

    k: DirectKernel
    before: Sequence[Dim]
    n: Dim
    after: Sequence[Dim]
    inner: Dim
    o: Dim
    low: ir.Value
    high: ir.Value

    def each(self) -> AbstractContextManager[Dim]:
        """A loop over them."""
        return self.k.loop(self.inner, self.low, self.high)

    def place(self, i: Dim, c: Dim) -> tuple[tuple[Dim, ...], Dim]:
        """The index of element (or update) `i` of column `c`, and the flat position of the element in `x`."""
        ranges, flat = self.k.ranges, (self.o * self.n + i) * self.inner + c
        if not self.k.shape(self.k.operands["x"]):
            return (), flat
        return (*ranges.delinearize(self.o, self.before), i, *ranges.delinearize(c, self.after)), flat

    def copy(self) -> None:
        """`y` begins as `x`."""
        with self.k.loop(self.n) as i, self.each() as c:
            at, flat = self.place(i, c)
            self._put(flat, self.k.read(self.k.operands["x"], at))

    def clear(self, at: Dim, c: Dim) -> None:
        """Element `at` of column `c` does not count: its first update is to be its value."""
        dtype = self.k.dtype(self.k.operands["x"])
        self._put(self.place(at, c)[1], _identity(self.k, self.k.attributes["reduce"], dtype))

    def write(self, at: Dim, m: Dim, c: Dim) -> None:
        """Update element `at` of column `c` by update `m` of it."""
        k, flat, reduce = self.k, self.place(at, c)[1], self.k.attributes["reduce"]
        new = k.read(k.operands["src"], self.place(m, c)[0])
        if k.is_bool(k.operands["x"]) and reduce == "add":
            reduce = "amax"  # a byte of 2 is no bool
        if reduce != "none":
            new = combine(k.s, reduce, k.load(k.outputs["y"][0], flat, k.dtype(k.operands["x"])), new)
        self._put(flat, new)

    def share_a_position(self, m: Dim) -> bool:
        """Is the position of update `m` the same in all columns, each of which has it?"""
        k, index = self.k, self.k.operands["index"]
        after = k.shape(index)[len(self.before) + 1 :]
        whole = bool(k.shape(k.operands["x"])) and all(a == u for a, u in zip(self.after, after))
        return whole and not k.depends(index, lambda c: self.place(m, c)[0])

    def update(self, m: Dim, c: Dim, write: Callable[[Dim], None]) -> None:
        """Call `write(position)` for update `m` of column `c` if it exists and its position is in range."""
        k, index, here, d = self.k, self.k.operands["index"], self.place(m, c)[0], len(self.before)
        shape = k.shape(k.operands["x"])
        inside: ir.Value | None = None
        for axis, (size, limit) in enumerate(zip(shape, k.shape(index))):
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

    def _put(self, flat: Dim, value: Scalar) -> None:
        (y,) = self.k.outputs["y"]
        self.k.put(y, flat, value)


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
