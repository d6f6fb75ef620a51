"""Emit sort: insertion-sorted runs, then a bottom-up merge sort of each row's entries. A work item is one row."""

from __future__ import annotations

from collections.abc import Sequence

from ...dialects.dims import Dim, ceildiv, dim_min
from ..linalg.scalar_core import Scalar
from .kernel import DirectKernel, around, grain
from .keys import entry, entry_dtypes, insert_entry, load_entry, put_entry
from .ranked_rows import RankedRows

RUN = 8  # elements per insertion-sorted run


def sort(k: DirectKernel) -> tuple[Dim, Dim]:
    """All entries, in order."""
    n = around(k.shape(k.operands["x"]), k.attributes["dim"])[1]
    return sort_rows(k, bool(k.attributes["descending"]), n)


def sort_rows(k: DirectKernel, descending: bool, kept: Dim) -> tuple[Dim, Dim]:
    """Sort every row along `dim` and store the first `kept` elements and where they were."""
    rows = RankedRows(k)
    n = rows.length
    # two halves of n entries each: merges go from one to the other
    arrays = [k.scratch(2 * n, d) for d in entry_dtypes(k.dtype(k.operands["x"]))]
    with rows.each():
        with k.loop(n) as i:
            put_entry(k, arrays, i, entry(k.s, rows.read(i), Scalar(k.b.dim(i), "index"), descending))
        _sort_runs(k, arrays, n)
        source = _merge_runs(k, arrays, n)
        rows.store(arrays, source, kept)
    return rows.count, grain(n * 64)


def _sort_runs(k: DirectKernel, arrays: Sequence, n: Dim) -> None:
    with k.loop(ceildiv(n, RUN)) as run:
        low = run * RUN
        length = k.b.bind_fresh(k.b.dim(dim_min(RUN, n - low)))
        with k.loop(RUN, 1, length) as i:
            at = k.b.bind_fresh(k.b.dim(low + i))
            insert_entry(k, arrays, low, Scalar(k.b.dim(at), "index"), load_entry(k, arrays, at))


def _merge_runs(k: DirectKernel, arrays: Sequence, n: Dim) -> Dim:
    """Merge runs of doubling width until one is left; returns where the sorted entries start."""
    b = k.b
    end = Scalar(b.dim(n), "index")

    def step(width: Scalar, source: Scalar) -> list[Scalar]:
        w, src = b.bind_fresh(width.value), b.bind_fresh(source.value)
        with k.loop(n, 0, ceildiv(n, 2 * w)) as pair:
            low = b.bind_fresh(b.dim(pair * w * 2))
            middle = b.bind_fresh(b.dim(dim_min(low + w, n)))
            high = b.bind_fresh(b.dim(dim_min(low + 2 * w, n)))
            _merge(k, arrays, src, n, low, middle, high)
        s = k.s
        return [s.add(width, width), s.sub(end, source)]

    s = k.s
    start = [s.const(RUN, "index"), s.const(0, "index")]
    _, source = k.while_loop(start, lambda width, source: k.s.lt(width, end), step)
    return b.bind_fresh(source.value)


def _merge(k: DirectKernel, arrays: Sequence, source: Dim, n: Dim, low: Dim, middle: Dim, high: Dim) -> None:
    """Merge `low .. middle` and `middle .. high` of the half at `source` into the other half."""
    b = k.b
    mid, end = (Scalar(b.dim(d), "index") for d in (middle, high))
    last = k.s.sub(end, 1)

    def step(t: Dim, i: Scalar, j: Scalar) -> list[Scalar]:
        s = k.s
        # both are read at a valid place even when one side is used up
        left = load_entry(k, arrays, source + b.bind_fresh(i.value))
        right = load_entry(k, arrays, source + b.bind_fresh(s.minimum(j, last).value))
        open_left = s.lt(i, mid)
        used_up = s.ge(j, end)
        take = s.bitwise_and(open_left, s.bitwise_or(used_up, s.le(left[0], right[0])))
        chosen = [s.select(take, a, c) for a, c in zip(left, right)]
        put_entry(k, arrays, n - source + low + t, chosen)
        return [s.add(i, s.cast(take, "index")), s.add(j, s.cast(s.bitwise_not(take), "index"))]

    k.fold(high - low, [Scalar(b.dim(low), "index"), mid], step)
