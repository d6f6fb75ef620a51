"""Systems of linear equations whose matrix is triangular: substitution, row after row."""

from __future__ import annotations

from ..dtypes import is_float
from ..lazy import np, pt
from ..op import Attr, Op, Operand, Result, check, sample


def _triangular(*shape, upper=False):
    """Makes a matrix that substitution solves well, with values beyond the triangle, which are not read."""

    def make(rng):
        a = rng.uniform(-0.5, 0.5, shape).astype(np.float32)
        n = shape[-1]
        return np.where(
            np.eye(n, dtype=bool), 2 + a, a + (1e6 * np.tri(n, k=-1) if upper else 1e6 * np.tri(n, k=-1).T)
        ).astype(np.float32)

    return make


class TriangularSolve(Op, name="triangular_solve", category="direct"):
    """The `y` with `a y = b` for lower (or `upper`) triangular `a` [..., N, N] and `b` [..., N, K].

    Sums of f32 run in f64. What lies beyond the triangle is not read; neither is the diagonal with `unit`, of ones then.
    """

    a: Operand
    b: Operand
    upper: Attr[bool] = False
    unit: Attr[bool] = False
    y: Result

    numerics = "order"
    samples = (
        sample(_triangular(5, 5), (5, 3)),
        sample(_triangular(2, 3, 8, 8), (2, 3, 8, 70), unit=True),
        sample(_triangular(2, 7, 7, upper=True), (2, 7, 4), upper=True),
        sample(_triangular(6, 6, upper=True), (6, 1), upper=True, unit=True),
        sample((2, 0, 0), (2, 0, 3)),
    )

    @staticmethod
    def infer(a, b, upper, unit):
        check(is_float(a.dtype) and a.dtype == b.dtype, f"a and b have types {a.dtype} and {b.dtype}, no equal floats")
        check(a.rank == b.rank >= 2, f"a and b have ranks {a.rank} and {b.rank}, which must be equal and at least 2")
        check(a.shape[-1] == a.shape[-2], f"a {list(a.shape)} is not square")
        check(b.shape[:-1] == a.shape[:-1], f"b {list(b.shape)} does not fit a {list(a.shape)}")
        return b

    @staticmethod
    def torch(a, b, upper=False, unit=False):
        return pt.linalg.solve_triangular(a, b, upper=upper, unitriangular=unit)

    @staticmethod
    def reference(a, b, upper, unit):
        y, n = b.astype(np.float64), a.shape[-1]
        for t in range(n):
            i = n - 1 - t if upper else t
            done = slice(i + 1, n) if upper else slice(0, i)
            y[..., i, :] -= np.einsum("...j,...jk->...k", a[..., i, done].astype(np.float64), y[..., done, :])
            if not unit:
                y[..., i, :] /= a[..., i, i, None]
        return y.astype(b.dtype)
