"""Emit scans: one accumulator walks along the dim and every step is stored.

With the dim innermost a work item is one row. Otherwise it is a strip of columns, whose accumulators lie in a small
buffer, so that memory is walked in order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf

from ...dialects.dims import Dim, ceildiv, dim_min, floordiv, product
from ..linalg.scalar_core import Scalar, highest, kind, lowest
from .kernel import DirectKernel, Scalars, around, grain

LANES = 4  # an f64 addition takes four cycles: one row alone would wait for each

# step(s, element, position, *accumulators) -> the next accumulators, which are what is stored
Step = Callable[..., Sequence[Scalar]]
Inits = Sequence[tuple[bool | int | float, str]]  # the accumulators' start values and dtypes


def cumsum(k: DirectKernel) -> tuple[Dim, Dim]:
    """`y[i] = y[i - 1] + x[i]`."""
    acc = _wide(k)
    return _scan(k, [(0, acc)], lambda s, v, at, total: [s.add(total, s.cast(v, acc))], ["y"])


def cumprod(k: DirectKernel) -> tuple[Dim, Dim]:
    """`y[i] = y[i - 1] · x[i]`."""
    acc = _wide(k)
    return _scan(k, [(1, acc)], lambda s, v, at, total: [s.mul(total, s.cast(v, acc))], ["y"])


def logcumsumexp(k: DirectKernel) -> tuple[Dim, Dim]:
    """`y[i] = log(exp(y[i - 1]) + exp(x[i]))`."""
    acc = "f64" if k.dtype(k.operands["x"]) == "f64" else "f32"

    def step(s: Scalars, v: Scalar, at: Scalar, total: Scalar) -> Sequence[Scalar]:
        v = s.cast(v, acc)
        low, high = s.minimum(total, v), s.maximum(total, v)
        # equal infinities would give inf - inf
        sum_ = s.add(high, s.log1p(s.exp(s.sub(low, high))))
        return [s.select(s.bitwise_and(s.eq(low, high), s.eq(s.abs(low), inf)), v, sum_)]

    return _scan(k, [(-inf, acc)], step, ["y"])


def cummax(k: DirectKernel) -> tuple[Dim, Dim]:
    """The largest so far and where it is."""
    return _extreme(k, "ge", lowest(k.dtype(k.operands["x"])))


def cummin(k: DirectKernel) -> tuple[Dim, Dim]:
    """The smallest so far and where it is."""
    return _extreme(k, "le", highest(k.dtype(k.operands["x"])))


def _extreme(k: DirectKernel, wins: str, start: bool | int | float) -> tuple[Dim, Dim]:
    dtype = k.dtype(k.operands["x"])

    def step(s: Scalars, v: Scalar, at: Scalar, best: Scalar, where: Scalar) -> Sequence[Scalar]:
        take = s.compare(wins, v, best)
        if kind(dtype) == "float":
            take = s.bitwise_or(s.isnan(v), take)  # a comparison with a kept NaN is false
        return [s.select(take, v, best), s.select(take, s.cast(at, "i64"), where)]

    return _scan(k, [(start, dtype), (0, "i64")], step, ["y", "indices"])


def _wide(k: DirectKernel) -> str:
    """The accumulator of eager on the CPU: f64 for f32, f32 for halves, integers as they are."""
    dtype = k.dtype(k.operands["x"])
    return {"f32": "f64", "f16": "f32", "bf16": "f32"}.get(dtype, dtype)


def _scan(k: DirectKernel, inits: Inits, step: Step, results: list[str]) -> tuple[Dim, Dim]:
    x = k.operands["x"]
    outer, n, inner = around(k.shape(x), k.attributes["dim"])
    if product(inner) == 1:
        return _rows(k, inits, step, results, outer, n, inner)
    return _strips(k, inits, step, results, outer, n, inner)


def _rows(
    k: DirectKernel, inits: Inits, step: Step, results: list[str], outer: Sequence[Dim], n: Dim, inner: Sequence[Dim]
) -> tuple[Dim, Dim]:
    """Rows in groups of LANES, whose chains of dependent additions overlap, then the rest one by one."""
    b = k.b
    begin, end = b.bind_fresh(k.begin), b.bind_fresh(k.end)
    groups = b.bind_fresh(b.dim(floordiv(end - begin, LANES)))
    with k.loop(product(outer), 0, b.dim(groups)) as group:
        first = begin + group * LANES
        _walk_rows(k, inits, step, results, [first + lane for lane in range(LANES)], outer, n, inner)
    with k.loop(product(outer), b.dim(begin + groups * LANES), k.end) as row:
        _walk_rows(k, inits, step, results, [row], outer, n, inner)
    return product(outer), grain(n * 2)


def _walk_rows(
    k: DirectKernel,
    inits: Inits,
    step: Step,
    results: list[str],
    rows: Sequence[Dim],
    outer: Sequence[Dim],
    n: Dim,
    inner: Sequence[Dim],
) -> None:
    x = k.operands["x"]
    rows = [k.b.bind_fresh(k.b.dim(row)) for row in rows]
    fronts = [k.ranges.delinearize(row, outer) for row in rows]

    def body(i: Dim, *acc: Scalar) -> Sequence[Scalar]:
        made: list[Scalar] = []
        for lane, (row, front) in enumerate(zip(rows, fronts)):
            index = (*front, i, *([0] * len(inner))) if k.shape(x) else ()
            mine = acc[lane * len(inits) : (lane + 1) * len(inits)]
            new = step(k.s, k.read(x, index), Scalar(k.b.dim(i), "index"), *mine)
            _store(k, results, row * n + i, new)
            made += new
        return made

    k.fold(n, [k.s.const(v, d) for _ in rows for v, d in inits], body)


def _strips(
    k: DirectKernel, inits: Inits, step: Step, results: list[str], outer: Sequence[Dim], n: Dim, inner: Sequence[Dim]
) -> tuple[Dim, Dim]:
    x, width = k.operands["x"], product(inner)
    strips = ceildiv(width, k.strip)
    buffers = [k.scratch(k.strip, dtype) for _, dtype in inits]
    with k.loop(product(outer) * strips, k.begin, k.end) as item:
        front, strip = k.ranges.delinearize(item, (product(outer), strips))
        before = k.ranges.delinearize(front, outer)
        first = strip * k.strip
        columns = k.b.bind_fresh(k.b.dim(dim_min(k.strip, width - first)))
        with k.loop(k.strip, 0, columns) as c:
            for buffer, (value, dtype) in zip(buffers, inits):
                k.put(buffer, c, k.s.const(value, dtype))
        with k.loop(n) as i, k.loop(k.strip, 0, columns) as c:
            column = k.b.bind_fresh(k.b.dim(first + c))
            value = k.read(x, (*before, i, *k.ranges.delinearize(column, inner)))
            acc = [k.load(buffer, c, dtype) for buffer, (_, dtype) in zip(buffers, inits)]
            made = step(k.s, value, Scalar(k.b.dim(i), "index"), *acc)
            for buffer, scalar in zip(buffers, made):
                k.put(buffer, c, scalar)
            _store(k, results, (front * n + i) * width + first + c, made)
    return product(outer) * strips, grain(n * k.strip * 2)


def _store(k: DirectKernel, results: list[str], offset: Dim, values: Sequence[Scalar]) -> None:
    dtype = k.dtype(k.operands["x"])
    for name, value in zip(results, values):
        k.store(name, offset, value if name == "indices" else k.s.cast(value, dtype))
