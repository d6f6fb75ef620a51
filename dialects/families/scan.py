"""Scans: each element combined with all before it along a dim, in order.

Sums and products of f32 run in f64 and those of f16 and bf16 in f32, as in eager; each element is rounded once.
"""

from __future__ import annotations

from ..dtypes import is_float
from ..lazy import np, pt, wide
from ..op import Attr, Op, Operand, Result, check, normalize_dim, sample
from ..record import TensorType


class CumSum(Op, name="cumsum", category="direct"):
    """`y[i] = x[0] + … + x[i]` along `dim`."""

    x: Operand
    dim: Attr[int]
    y: Result

    samples = (
        sample((3, 40), dim=1),
        sample((3, 5, 4), dim=0),
        sample((), dim=0),
        sample(("i64", (4, 3)), dim=0, low=-9, high=9),
        sample(("bf16", (2, 20)), dim=1),
        sample(("f64", (2, 20)), dim=1),
        sample((0, 3), dim=0),
    )

    @staticmethod
    def infer(x, dim):
        return _same(x, dim)

    @staticmethod
    def torch(x, dim):
        return pt.cumsum(x, dim)

    @staticmethod
    def reference(x, dim):
        return np.cumsum(wide(x), dim if x.ndim else 0).reshape(x.shape).astype(x.dtype)


class CumProd(Op, name="cumprod", category="direct"):
    """`y[i] = x[0] · … · x[i]` along `dim`."""

    x: Operand
    dim: Attr[int]
    y: Result

    samples = (
        sample((3, 9), dim=1),
        sample((3, 5, 4), dim=0),
        sample((), dim=0),
        sample(("i32", (4, 3)), dim=0, low=-9, high=9),
    )

    @staticmethod
    def infer(x, dim):
        return _same(x, dim)

    @staticmethod
    def torch(x, dim):
        return pt.cumprod(x, dim, dtype=x.dtype)

    @staticmethod
    def reference(x, dim):
        return np.cumprod(wide(x), dim if x.ndim else 0).reshape(x.shape).astype(x.dtype)


class LogCumSumExp(Op, name="logcumsumexp", category="direct"):
    """`y[i] = log(exp(x[0]) + … + exp(x[i]))` along `dim`."""

    x: Operand
    dim: Attr[int]
    y: Result

    numerics = "order"
    samples = (
        sample((3, 20), dim=1),
        sample((3, 5, 4), dim=0, low=-90.0, high=90.0),
        sample(lambda rng: np.array([-np.inf, -np.inf, 1, np.inf, np.inf, np.nan, 0], np.float32), dim=0),
    )

    @staticmethod
    def infer(x, dim):
        check(is_float(x.dtype), f"takes a float tensor, got {x.dtype}")
        return _same(x, dim)

    @staticmethod
    def torch(x, dim):
        return pt.logcumsumexp(x, dim)

    @staticmethod
    def reference(x, dim):
        if not x.ndim:
            return x
        with np.errstate(invalid="ignore"):
            return np.logaddexp.accumulate(wide(x), dim).astype(x.dtype)


class CumMax(Op, name="cummax", category="direct"):
    """`y[i] = max(x[0], …, x[i])` along `dim` and where it is: the last of equal ones; NaN wins from there on."""

    x: Operand
    dim: Attr[int]
    y: Result
    indices: Result

    samples = (
        sample((3, 20), dim=1),
        sample(("i64", (9, 4)), dim=0, low=-3, high=3),
        sample((), dim=0),
        sample(lambda rng: np.array([1, 3, 3, np.nan, 5, np.nan, 7], np.float32), dim=0),
    )

    @staticmethod
    def infer(x, dim):
        return _same(x, dim), TensorType("i64", x.shape)

    @staticmethod
    def torch(x, dim):
        return pt.cummax(x, dim)

    @staticmethod
    def reference(x, dim):
        return _extreme(x, dim, np.greater_equal)


class CumMin(Op, name="cummin", category="direct"):
    """`y[i] = min(x[0], …, x[i])` along `dim` and where it is: the last of equal ones; NaN wins from there on."""

    x: Operand
    dim: Attr[int]
    y: Result
    indices: Result

    samples = CumMax.samples

    @staticmethod
    def infer(x, dim):
        return _same(x, dim), TensorType("i64", x.shape)

    @staticmethod
    def torch(x, dim):
        return pt.cummin(x, dim)

    @staticmethod
    def reference(x, dim):
        return _extreme(x, dim, np.less_equal)


def _same(x, dim):
    check(x.dtype != "bool", "is not defined on bool; cast")
    normalize_dim(dim, x.rank)
    return x


def _extreme(x, dim, wins):
    v = np.moveaxis(np.atleast_1d(x), dim, 0).copy()
    at = np.zeros(v.shape, np.int64)
    for i in range(1, v.shape[0]):
        take = (
            np.isnan(v[i]) | (~np.isnan(v[i - 1]) & wins(v[i], v[i - 1]))
            if v.dtype.kind == "f"
            else wins(v[i], v[i - 1])
        )
        v[i], at[i] = np.where(take, v[i], v[i - 1]), np.where(take, i, at[i - 1])
    return np.moveaxis(v, 0, dim).reshape(x.shape), np.moveaxis(at, 0, dim).reshape(x.shape)
