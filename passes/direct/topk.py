"""Emit topk: a short sorted list of the best entries so far, or a whole sort where the list would be long."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mlir import ir

from ...dialects.dims import Dim, ceildiv, dim_min
from ..linalg.scalar_core import Scalar
from .kernel import DirectKernel, grain
from .keys import entry, entry_dtypes, entry_key, insert_entry, is_packed, load_entry, order_key
from .ranked_rows import RankedRows
from .sort import sort_rows

# An insertion into a list of k moves k / 2 entries, and about k ln(n / k) of n random elements are inserted.
LONGEST_LIST = 64
BLOCK = 64


def topk(k: DirectKernel) -> tuple[Dim, Dim]:
    """The best `k` entries of each row, in order; a work item is one row."""
    kept, largest = k.attributes["k"], bool(k.attributes["largest"])
    if kept > LONGEST_LIST:
        return sort_rows(k, largest, kept)
    rows = RankedRows(k)
    n = rows.length
    arrays = [k.scratch(max(kept, 1), d) for d in entry_dtypes(k.dtype(k.operands["x"]))]
    with rows.each():

        def insert(i: Dim, last: Scalar) -> None:
            insert_entry(k, arrays, 0, last, entry(k.s, rows.read(i), Scalar(k.b.dim(i), "index"), largest))

        with k.loop(kept) as i:
            insert(i, Scalar(k.b.dim(i), "index"))
        if kept:
            _improve(rows, arrays, kept, largest, insert)
        rows.store(arrays, 0, kept)
    return rows.count, grain(n * 2)


def _improve(
    rows: RankedRows,
    arrays: Sequence[ir.Value],
    kept: int,
    largest: bool,
    insert: Callable[[Dim, Scalar], None],
) -> None:
    """Take what is better than the worst entry kept, from element `kept` on.

    A block is looked at closely only if the smallest of its keys is better, which a vectorised loop finds out.
    """
    k, b, n = rows.k, rows.k.b, rows.length

    def key(at: Dim) -> Scalar:
        return order_key(k.s, rows.read(at), largest)

    def worst() -> Scalar:
        return entry_key(k.s, load_entry(k, arrays, kept - 1))

    with k.loop(n, 0, b.dim(ceildiv(n - kept, BLOCK))) as block:
        first = kept + block * BLOCK
        length = b.bind_fresh(b.dim(dim_min(BLOCK, n - first)))

        def smaller(i: Dim, best: Scalar, first: Dim = first) -> list[Scalar]:
            return [k.s.minimum(best, key(b.bind_fresh(b.dim(first + i))))]

        unsigned = "u32" if is_packed(k.dtype(k.operands["x"])) else "u64"
        (best,) = k.fold(length, [k.s.const(-1, unsigned)], smaller)

        def look_closely(first: Dim = first, length: Dim = length) -> None:
            with k.loop(BLOCK, 0, length) as i:
                at = b.bind_fresh(b.dim(first + i))
                better = k.s.lt(key(at), worst())
                k.when(better.value, lambda: insert(at, k.s.const(kept - 1, "index")))

        k.when(k.s.lt(best, worst()).value, look_closely)
