"""Emit embedding_bag: a work item is one bag, whose rows are combined in strips of columns."""

from __future__ import annotations

from math import inf

from ...dialects.dims import Dim, ceildiv, dim_min
from ...dialects.status import GATHER_OUT_OF_RANGE
from ..linalg.scalar_core import Scalar
from .kernel import DirectKernel, grain

STRIP = 128


def embedding_bag(k: DirectKernel) -> tuple[Dim, Dim]:
    """The sum, mean or maximum of the rows of each bag; f16 and bf16 in f32, rounded once."""
    weight, indices, offsets, scales = (k.operands[n] for n in ("weight", "indices", "offsets", "scales"))
    mode, padding, dtype = k.attributes["mode"], k.attributes["padding_idx"], k.dtype(weight)
    acc = "f64" if dtype == "f64" else "f32"
    rows, width = k.shape(weight)
    (entries,) = k.shape(indices)
    declared = k.shape(offsets)[0]
    bags = declared - 1 if k.attributes["include_last_offset"] else declared
    total = k.scratch(STRIP, acc)
    with k.loop(bags, k.begin, k.end) as bag:
        start, end = _bounds(k, offsets, bag, declared, entries)
        with k.loop(ceildiv(width, STRIP)) as strip:
            first = strip * STRIP
            columns = k.b.bind_fresh(k.b.dim(dim_min(STRIP, width - first)))
            with k.loop(STRIP, 0, columns) as c:
                k.put(total, c, k.s.const(-inf if mode == "max" else 0.0, acc))

            def step(t: Dim, count: Scalar, first: Dim = first, columns: Dim = columns) -> list[Scalar]:
                entry = k.b.bind_fresh(k.b.dim(start + t))
                index = k.read(indices, (entry,))
                at, ok = k.valid(index, rows, wrap=False, check=GATHER_OUT_OF_RANGE)
                s = k.s
                used = Scalar(ok, "bool")
                if padding >= 0:
                    used = s.bitwise_and(used, s.ne(index, padding))

                def add_row() -> None:
                    scale = None if scales is None else k.s.cast(k.read(scales, (entry,)), acc)
                    with k.loop(STRIP, 0, columns) as c:
                        s = k.s
                        value = s.cast(k.read(weight, (at, k.b.bind_fresh(k.b.dim(first + c)))), acc)
                        value = value if scale is None else s.mul(value, scale)
                        old = k.load(total, c, acc)
                        k.put(total, c, s.maximum(old, value) if mode == "max" else s.add(old, value))

                k.when(used.value, add_row)
                return [k.s.add(count, k.s.cast(used, "i64"))]

            (count,) = k.fold(end - start, [k.s.const(0, "i64")], step)
            with k.loop(STRIP, 0, columns) as c:
                s = k.s
                value = k.load(total, c, acc)
                if mode == "mean":
                    value = s.div(value, s.cast(s.maximum(count, 1), acc))
                if mode == "max":
                    value = s.select(s.eq(count, 0), 0.0, value)
                k.store("y", bag * width + first + c, s.cast(value, dtype))
    return bags, grain(width * 8)


def _bounds(k: DirectKernel, offsets, bag: Dim, declared: Dim, entries: Dim) -> tuple[Dim, Dim]:
    """First entry and end of a bag, within the entries whatever the offsets say."""
    s = k.s
    limit = Scalar(k.b.dim(entries), "index")

    def offset(at: Dim) -> Scalar:
        return s.minimum(s.maximum(s.cast(k.read(offsets, (at,)), "index"), 0), limit)

    start = offset(bag)
    following = k.b.bind_fresh(k.b.dim(dim_min(bag + 1, declared - 1)))
    last = s.eq(Scalar(k.b.dim(bag), "index"), Scalar(k.b.dim(declared - 1), "index"))
    end = s.select(last, limit, offset(following))
    return k.b.bind_fresh(start.value), k.b.bind_fresh(s.maximum(end, start).value)
