"""The rows along `dim` of which `sort` and `topk` return the first elements in some order; a work item is one row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ...dialects.dims import Dim, product
from ..linalg.scalar_core import Scalar
from .kernel import DirectKernel, around
from .keys import entry_position, load_entry


class RankedRows:
    """The rows of operand `x`: `count` of `length` elements."""

    def __init__(self, k: DirectKernel):
        self.k, self._x = k, k.operands["x"]
        self.before, self.length, self.after = around(k.shape(self._x), k.attributes["dim"])
        self.count = product(self.before) * product(self.after)

    @contextmanager
    def each(self) -> Iterator[None]:
        """Go through all rows: what follows is of one."""
        k = self.k
        with k.loop(self.count, k.begin, k.end) as row:
            self._outer, self._inner = k.ranges.delinearize(row, (product(self.before), product(self.after)))
            self._front = k.ranges.delinearize(self._outer, self.before)
            self._back = k.ranges.delinearize(self._inner, self.after)
            yield

    def read(self, i: Dim) -> Scalar:
        """Element `i`."""
        k = self.k
        return k.read(self._x, (*self._front, i, *self._back) if k.shape(self._x) else ())

    def store(self, arrays: Sequence, first: Dim, kept: Dim) -> None:
        """Store the elements of `kept` entries from number `first` on, and where they were."""
        k = self.k
        with k.loop(kept) as i:
            at = entry_position(k.s, load_entry(k, arrays, first + i))
            flat = (self._outer * kept + i) * product(self.after) + self._inner
            k.store("indices", flat, k.s.cast(at, "i64"))
            if k.outputs["values"]:
                k.store("values", flat, self.read(k.b.bind_fresh(at.value)))
