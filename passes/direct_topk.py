"""Emit topk: a short sorted list of the best entries so far, or a whole sort where the list would be long."""

from __future__ import annotations

from ..dialects.dims import Dim, product
from .direct_kernel import DirectKernel, around, grain
from .direct_keys import entry, entry_dtypes, entry_position, insert_entry, load_entry
from .direct_sort import sort_rows
from .scalar_core import Scalar

# An insertion into a list of k moves k / 2 entries, and about k ln(n / k) of n random elements are inserted.
LONGEST_LIST = 64


def topk(k: DirectKernel) -> tuple[Dim, Dim]:
    """The best `k` entries of each row, in order; a work item is one row."""
    kept, largest = k.attributes["k"], bool(k.attributes["largest"])
    if kept > LONGEST_LIST:
        return sort_rows(k, largest, kept)
    x = k.operands["x"]
    before, n, after = around(k.shape(x), k.attributes["dim"])
    rows = product(before) * product(after)
    arrays = [k.scratch(max(kept, 1), d) for d in entry_dtypes(k.dtype(x))]
    with k.loop(rows, k.begin, k.end) as row:
        outer, inner = k.ranges.delinearize(row, (product(before), product(after)))
        front, back = k.ranges.delinearize(outer, before), k.ranges.delinearize(inner, after)

        def index(i: Dim) -> tuple[Dim, ...]:
            return (*front, i, *back) if k.shape(x) else ()

        def step(i: Dim, count: Scalar) -> list[Scalar]:
            new = entry(k.s, k.read(x, index(i)), Scalar(k.b.dim(i), "index"), largest)
            s = k.s
            last = s.minimum(count, kept - 1)
            better = s.lt(new[0], k.load(arrays[0], kept - 1, "u64"))
            take = s.bitwise_or(s.lt(count, kept), better)
            k.when(take.value, lambda: insert_entry(k, arrays, 0, last, new))
            return [s.minimum(s.add(count, 1), kept)]

        if kept:
            k.fold(n, [k.s.const(0, "index")], step)
        with k.loop(kept) as i:
            at = entry_position(k.s, load_entry(k, arrays, i))
            flat = (outer * kept + i) * product(after) + inner
            k.store("indices", flat, k.s.cast(at, "i64"))
            if k.outputs["values"]:
                k.store("values", flat, k.read(x, index(k.b.bind_fresh(at.value))))
    return rows, grain(n * 2)
