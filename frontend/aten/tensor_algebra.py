"""ATen's small tensor algebra: outer, cross and trilinear products, block matrices, rotations, renormalisation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...dialects.op import normalize_dim
from .promotion import as_value, number, result_type
from .registry import Value, aten
from .tensor_math import T


@aten("addr")
def addr(c: Any, x: Value, a: Value, b: Value, beta: Any = 1, alpha: Any = 1) -> Value:
    """`beta x + alpha (a outer b)`; with `beta` 0, NaN in `x` does not count."""
    dtype = c.out_type.dtype
    t, u, v = (T(c, c.cast(o, dtype)) for o in (x, a, b))  # eager rounds every step of halves
    outer = (u if alpha == 1 else u * number(alpha, dtype)).unsqueeze(-1) * v
    if beta == 0:
        return outer.value
    return ((t if beta == 1 else t * number(beta, dtype)) + outer).value


@aten("linalg_cross", "cross")
def cross(c: Any, x: Value, y: Value, dim: int | None = -1) -> Value:
    """The cross product of vectors along `dim`, of size 3."""
    dtype, shape = c.out_type.dtype, c.out_type.shape
    a, b = (T(c, as_value(c, v, dtype)).expand(*shape) for v in (x, y))
    d = normalize_dim(-1 if dim is None else dim, a.rank)
    if dim is None:
        d = shape.index(3)
    p, q = ([v.slice(d, i, 1) for i in range(3)] for v in (a, b))
    parts = [p[i] * q[j] - p[j] * q[i] for i, j in ((1, 2), (2, 0), (0, 1))]
    return c.op("concat", *(v.value for v in parts), dim=d)


@aten("block_diag")
def block_diag(c: Any, xs: Sequence[Value]) -> Value:
    """Matrices along the diagonal, zeros elsewhere."""
    dtype = result_type(c, xs)
    rows, columns = c.out_type.shape
    at, made = [0, 0], []
    for x in xs:
        t = T(c, c.cast(x, dtype))
        t = t.reshape(*[1] * (2 - t.rank), *t.shape)
        after = columns - at[1] - t.shape[1]
        made.append(t.op("pad", low=(0, at[1]), high=(0, after), value=number(0, dtype), mode="constant"))
        at = [at[0] + t.shape[0], at[1] + t.shape[1]]
    return c.op("concat", *(m.value for m in made), dim=0)


@aten("rot90")
def rot90(c: Any, x: Value, k: int = 1, dims: Sequence[int] = (0, 1)) -> Value:
    """`k` quarter turns from `dims[0]` towards `dims[1]`."""
    t = T(c, x)
    a, b = (normalize_dim(d, t.rank) for d in dims)
    order = list(range(t.rank))
    order[a], order[b] = order[b], order[a]
    match k % 4:
        case 0:
            return x
        case 1:
            return t.op("flip", dims=(b,)).permute(*order).value
        case 2:
            return t.op("flip", dims=tuple(sorted((a, b)))).value
    return t.permute(*order).op("flip", dims=(b,)).value


@aten("renorm")
def renorm(c: Any, x: Value, p: float, dim: int, limit: float) -> Value:
    """Slices along `dim` whose p-norm exceeds `limit` are scaled down to it."""
    t = T(c, x)
    wide = t.wide()
    d = normalize_dim(dim, t.rank)
    others = tuple(i for i in range(t.rank) if i != d)
    if p == math.inf:
        norm = wide.abs().op("amax", dims=others, keepdim=True)
    elif p == 2:
        norm = (wide * wide).sum(others, True).op("sqrt")
    elif p == 1:
        norm = wide.abs().sum(others, True)
    else:
        norm = wide.abs().op("pow", float(p)).sum(others, True).op("pow", 1.0 / p)
    factor = norm.gt(float(limit)).where(float(limit) / (norm + 1e-7), norm.like(1.0))
    return (wide * factor).to(t.dtype).value


@aten("_trilinear")
def trilinear(
    c: Any,
    a: Value,
    b: Value,
    d: Value,
    expand_a: Sequence[int],
    expand_b: Sequence[int],
    expand_d: Sequence[int],
    summed: Sequence[int],
    unroll: int = 1,
) -> Value:
    """`sum(a * b * d)` along `summed`, once each operand has a dim of 1 at every position of its `expand`."""
    made = []
    for value, places in ((a, expand_a), (b, expand_b), (d, expand_d)):
        t = T(c, value)
        for place in places:
            t = t.unsqueeze(place)
        made.append(t)
    return (made[0] * made[1] * made[2]).sum(tuple(summed)).value
