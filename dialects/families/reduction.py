"""Sums along `dims`: sum, prod, mean, var_mean. The choosing reductions are in `extremes`.

`dims` are the reduced dimensions (0 .. rank - 1); the result lacks them, or has size 1 there with `keepdim`. A rank-0
operand is reduced over no dims. Float sums are accumulated in f32 or better and rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..dims import Dim, product
from ..dtypes import DTYPES, is_float
from ..lazy import np, pt, wide
from ..op import Attr, DTypeAttr, Ints, Op, Operand, Result, check, sample
from ..record import TensorType


def reduced_shape(x: TensorType, dims: tuple[int, ...], keepdim: bool) -> tuple[Dim, ...]:
    """The shape without `dims`, or with size 1 there."""
    check(len(set(dims)) == len(dims), f"dims {list(dims)} repeat")
    check(all(0 <= d < x.rank for d in dims), f"dims {list(dims)} of {x}; they are 0..{x.rank - 1}")
    if keepdim:
        return tuple(1 if i in dims else d for i, d in enumerate(x.shape))
    return tuple(d for i, d in enumerate(x.shape) if i not in dims)


def _specials(rng: Any) -> Any:
    values = [[math.nan, 4.6, 1.0, 7.0, math.nan, 2.0], [0.0, -0.0, math.inf, -math.inf, 3.0, 3.0], [-math.inf] * 6]
    return np.array(values, np.float32)


SHAPES = (
    sample((3, 5, 4), dims=(1,), keepdim=False),
    sample((3, 5), dims=(0, 1), keepdim=True),
    sample((2, 7), dims=(1,), keepdim=True),
    sample(("bf16", (3, 9)), dims=(1,), keepdim=False),
    sample(("f64", (6,)), dims=(0,), keepdim=False),
    sample(_specials, dims=(1,), keepdim=False),
    sample((), dims=(), keepdim=False),
)
EMPTY = (sample((0, 4), dims=(0,), keepdim=False), sample((0, 4), dims=(1,), keepdim=True))


class _Sums(Op):
    """Base of sum and prod: the result has its own dtype, to which integers are cast first."""

    samples = tuple(
        sample(*s.operands, **s.attributes, dtype=s.operands[0][0] if isinstance(s.operands[0], tuple) else "f32")
        for s in SHAPES + EMPTY
    ) + (
        sample(("bool", (5,)), dims=(0,), keepdim=False, dtype="i64"),
        sample(("i32", (3, 4)), dims=(1,), keepdim=False, dtype="i64", low=-5, high=5),
        sample(("u8", (3, 4)), dims=(0,), keepdim=False, dtype="i64", low=0, high=255),
        sample((4, 3), dims=(0,), keepdim=False, dtype="f64"),
    )
    numerics = "order"

    @staticmethod
    def infer(x: TensorType, dims: tuple, keepdim: bool, dtype: str) -> TensorType:
        check(dtype in DTYPES and dtype != "bool", f"a sum of {dtype}")
        return TensorType(dtype, reduced_shape(x, dims, keepdim))


class Sum(_Sums, name="sum", category="reduction"):
    """The sum along `dims`, as `dtype`; 0 of no elements."""

    x: Operand
    dims: Attr[Ints]
    keepdim: Attr[bool] = False
    dtype: Attr[DTypeAttr] = "f32"
    y: Result

    @staticmethod
    def torch(x, dims, keepdim, dtype):
        return pt.sum(x, dims, keepdim, dtype=getattr(pt, DTYPES[dtype].torch)) if dims else x.to(_pt(dtype))

    @staticmethod
    def reference(x, dims, keepdim, dtype):
        return _fold(np.sum, x, dims, keepdim, dtype)

    @staticmethod
    def lower(b, x, dims, keepdim, dtype):
        return b.sum(x, dims, keepdim, dtype)


class Prod(_Sums, name="prod", category="reduction"):
    """The product along `dims`, as `dtype`; 1 of no elements."""

    x: Operand
    dims: Attr[Ints]
    keepdim: Attr[bool] = False
    dtype: Attr[DTypeAttr] = "f32"
    y: Result

    @staticmethod
    def torch(x, dims, keepdim, dtype):
        x = x.to(_pt(dtype))
        for d in sorted(dims, reverse=True):
            x = pt.prod(x, d, keepdim)
        return x

    @staticmethod
    def reference(x, dims, keepdim, dtype):
        return _fold(np.prod, x, dims, keepdim, dtype)

    @staticmethod
    def lower(b, x, dims, keepdim, dtype):
        return b.prod(x, dims, keepdim, dtype)


class Mean(Op, name="mean", category="reduction"):
    """The sum along `dims` divided by the number of elements; NaN of none."""

    x: Operand
    dims: Attr[Ints]
    keepdim: Attr[bool] = False
    y: Result

    samples = SHAPES + EMPTY
    numerics = "order"

    @staticmethod
    def infer(x, dims, keepdim):
        check(is_float(x.dtype), f"takes a float tensor, got {x.dtype}")
        return TensorType(x.dtype, reduced_shape(x, dims, keepdim))

    @staticmethod
    def torch(x, dims, keepdim):
        return pt.mean(x, dims, keepdim) if dims else x

    @staticmethod
    def reference(x, dims, keepdim):
        with np.errstate(all="ignore"):
            count = np.float64(math.prod(x.shape[d] for d in dims))
            return np.asarray(np.sum(wide(x), axis=dims, keepdims=keepdim) / count).astype(x.dtype)

    @staticmethod
    def lower(b, x, dims, keepdim):
        return b.mean(x, dims, keepdim)


class VarMean(Op, name="var_mean", category="reduction"):
    """Variance `sum((x - mean)^2) / max(n - correction, 0)` and mean along `dims`, in two passes; NaN of no elements."""

    x: Operand
    dims: Attr[Ints]
    correction: Attr[float] = 1.0
    keepdim: Attr[bool] = False
    var: Result
    mean: Result

    samples = tuple(sample(*s.operands, **s.attributes) for s in SHAPES[:5]) + (
        sample((3, 5), dims=(1,), keepdim=False, correction=0.0),
        sample((3, 1), dims=(1,), keepdim=False),
        sample((0, 3), dims=(0,), keepdim=False),
        sample(lambda rng: rng.standard_normal((2, 50)).astype(np.float32) + 1000, dims=(1,), keepdim=True),
        sample(lambda rng: np.array([[1.0, 3e38, -2.0]], np.float32), dims=(1,), keepdim=False),
    )
    numerics = "order"

    @staticmethod
    def infer(x, dims, correction, keepdim):
        check(is_float(x.dtype), f"takes a float tensor, got {x.dtype}")
        type = TensorType(x.dtype, reduced_shape(x, dims, keepdim))
        return type, type

    @staticmethod
    def torch(x, dims, correction, keepdim):
        return pt.var_mean(x, dims, correction=correction, keepdim=keepdim)

    @staticmethod
    def reference(x, dims, correction, keepdim):
        v = wide(x)
        count = math.prod(v.shape[d] for d in dims)
        with np.errstate(all="ignore"):
            mean = np.asarray(np.sum(v, axis=dims, keepdims=True) / np.float64(count))
            total = np.sum((v - mean) ** 2, axis=dims, keepdims=keepdim)
            var = np.asarray(total / np.float64(max(count - correction, 0)))
        return var.astype(x.dtype), mean.reshape(var.shape).astype(x.dtype)

    @staticmethod
    def lower(b, x, dims, correction, keepdim):
        v = b.wide(x)
        count = product(x.shape[d] for d in dims)
        mean = b.mean(v, dims, keepdim=True)
        centred = b.sub(v, mean)
        # sum((x - m)^2) - sum(x - m)^2 / n takes out the rounding error of m, which long f32 sums make visible
        rest = b.sum(centred, dims, keepdim)
        squares = b.sum(b.mul(centred, centred), dims, keepdim)

        def variance(s, total, error):
            n = s.cast(s.size(count), total.dtype)
            exact = s.maximum(s.sub(total, s.div(s.mul(error, error), n)), 0.0)
            exact = s.select(s.isinf(total), total, exact)  # both overflow where squares do, and inf - inf is NaN
            return s.cast(s.div(exact, s.maximum(s.sub(n, correction), 0.0)), x.dtype)

        return b.map(variance, squares, rest, dtypes=x.dtype), b.cast(b.reshape(mean, squares.shape), x.dtype)


def _pt(dtype: str) -> Any:
    return getattr(pt, DTYPES[dtype].torch)


def _fold(function: Callable[..., Any], x: Any, dims: tuple, keepdim: bool, dtype: str) -> Any:
    from ..interpret import numpy_dtype

    with np.errstate(all="ignore"):
        value = wide(x) if is_float(dtype) else x.astype(numpy_dtype(dtype))
        return np.asarray(function(value, axis=dims, keepdims=keepdim)).astype(numpy_dtype(dtype))
