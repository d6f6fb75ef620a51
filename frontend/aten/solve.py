"""ATen's solvers of linear equations, as far as they are substitution."""

from __future__ import annotations

from typing import Any

from ...dialects.op import broadcast
from .registry import Value, aten
from .tensor_math import T


@aten("linalg_solve_triangular")
def linalg_solve_triangular(
    c: Any, a: Value, b: Value, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Value:
    """The `y` of `a y = b`, or of `y a = b`, which is `a.mT y.mT = b.mT`; the batches broadcast."""
    m, r = T(c, a), T(c, b)
    batch = broadcast(m.shape[:-2], r.shape[:-2])
    m, r = (t.expand(*batch, *t.shape[-2:]) for t in (m, r))
    if not left:
        m, r, upper = m.transpose(), r.transpose(), not upper
    made = m.op("triangular_solve", r, upper=bool(upper), unit=bool(unitriangular))
    return (made if left else made.transpose()).value
