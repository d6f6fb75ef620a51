"""Reductions along `dims`: sum, prod, mean, var_mean, amax, amin, any, all, argmax, argmin.

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


def _nonempty(x: TensorType, dims: tuple[int, ...]) -> None:
    check(all(x.shape[d] != 0 for d in dims), f"no elements to choose from in {x} along {list(dims)}")


def _specials(rng: Any) -> Any:
    values = [[math.nan, 4.6, 1.0, 7.0, math.nan, 2.0], [0.0, -0.0, math.inf, -math.inf, 3.0, 3.0], [-math.inf] * 6]
    return np.array(values, np.float32)


_SHAPES = (
    sample((3, 5, 4), dims=(1,), keepdim=False),
    sample((3, 5), dims=(0, 1), keepdim=True),
    sample((2, 7), dims=(1,), keepdim=True),
    sample(("bf16", (3, 9)), dims=(1,), keepdim=False),
    sample(("f64", (6,)), dims=(0,), keepdim=False),
    sample(_specials, dims=(1,), keepdim=False),
    sample((), dims=(), keepdim=False),
)
_EMPTY = (sample((0, 4), dims=(0,), keepdim=False), sample((0, 4), dims=(1,), keepdim=True))


class _Sums(Op):
    """Base of sum and prod: the result has its own dtype, to which integers are cast first."""

    samples = tuple(
        sample(*s.operands, **s.attributes, dtype=s.operands[0][0] if isinstance(s.operands[0], tuple) else "f32")
        for s in _SHAPES + _EMPTY
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

    samples = _SHAPES + _EMPTY
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
            count = np.float64(product(x.shape[d] for d in dims))
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

    samples = tuple(sample(*s.operands, **s.attributes) for s in _SHAPES[:5]) + (
        sample((3, 5), dims=(1,), keepdim=False, correction=0.0),
        sample((3, 1), dims=(1,), keepdim=False),
        sample((0, 3), dims=(0,), keepdim=False),
        sample(lambda rng: rng.standard_normal((2, 50)).astype(np.float32) + 1000, dims=(1,), keepdim=True),
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
        count = product(v.shape[d] for d in dims)
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
            return s.cast(s.div(exact, s.maximum(s.sub(n, correction), 0.0)), x.dtype)

        return b.map(variance, squares, rest, dtypes=x.dtype), b.cast(b.reshape(mean, squares.shape), x.dtype)


def _choose(name: str, doc: str, fold: Callable[..., Any]) -> type:
    """amax and amin: of every dtype, NaN wins."""

    class Choose(Op, name=name, category="reduction"):
        __doc__ = doc
        x: Operand
        dims: Attr[Ints]
        keepdim: Attr[bool] = False
        y: Result

        samples = (
            *_SHAPES,
            sample(("i32", (3, 4)), dims=(0,), keepdim=False, low=-9, high=9),
            sample(("u8", (3, 4)), dims=(1,), keepdim=False, low=0, high=255),
            sample(("bool", (3, 4)), dims=(1,), keepdim=False),
        )

        @staticmethod
        def infer(x, dims, keepdim):
            _nonempty(x, dims)
            return TensorType(x.dtype, reduced_shape(x, dims, keepdim))

        @staticmethod
        def torch(x, dims, keepdim):
            return getattr(pt, name)(x, dims, keepdim)

        @staticmethod
        def reference(x, dims, keepdim):
            return np.asarray(fold().reduce(x, axis=dims, keepdims=keepdim)).astype(x.dtype)

        @staticmethod
        def lower(b, x, dims, keepdim):
            return getattr(b, name)(x, dims, keepdim)

    return Choose


Amax = _choose("amax", "The largest element along `dims`; NaN if there is one.", lambda: np.maximum)
Amin = _choose("amin", "The smallest element along `dims`; NaN if there is one.", lambda: np.minimum)


def _truth(name: str, doc: str) -> type:
    """any and all: of every dtype, to bool."""

    class Truth(Op, name=name, category="reduction"):
        __doc__ = doc
        x: Operand
        dims: Attr[Ints]
        keepdim: Attr[bool] = False
        y: Result

        samples = (
            *_SHAPES,
            *_EMPTY,
            sample(("bool", (3, 4)), dims=(1,), keepdim=False),
            sample(("i64", (3, 4)), dims=(0,), keepdim=True, low=0, high=2),
        )

        @staticmethod
        def infer(x, dims, keepdim):
            return TensorType("bool", reduced_shape(x, dims, keepdim))

        @staticmethod
        def torch(x, dims, keepdim):
            return getattr(pt, name)(x, dims, keepdim) if dims else x != 0

        @staticmethod
        def reference(x, dims, keepdim):
            return np.asarray(getattr(np, name)(x != 0, axis=dims, keepdims=keepdim))

        @staticmethod
        def lower(b, x, dims, keepdim):
            return getattr(b, name)(x, dims, keepdim)

    return Truth


Any_ = _truth("any", "True where an element along `dims` is not 0 (NaN is not); False of no elements.")
All = _truth("all", "True where no element along `dims` is 0; True of no elements.")


def _position(name: str, doc: str) -> type:
    """argmax and argmin along one dim or several (row-major position)."""

    class Position(Op, name=name, category="reduction"):
        __doc__ = doc
        x: Operand
        dims: Attr[Ints]
        keepdim: Attr[bool] = False
        y: Result

        samples = (
            *(s for s in _SHAPES if len(s.attributes["dims"]) == 1),
            sample((), dims=(), keepdim=False),
            sample(("i32", (3, 9)), dims=(1,), keepdim=False, low=0, high=3),
            sample(("u8", (3, 9)), dims=(0,), keepdim=True, low=0, high=3),
            sample(("bool", (7, 5)), dims=(0,), keepdim=False),
        )

        @staticmethod
        def infer(x, dims, keepdim):
            _nonempty(x, dims)
            return TensorType("i64", reduced_shape(x, dims, keepdim))

        @staticmethod
        def torch(x, dims, keepdim):
            if x.dtype == pt.bool:  # eager's argmax of bool is not defined; max's indices are
                return getattr(pt, name[3:])(x, dims[0], keepdim).indices
            return getattr(pt, name)(x, dims[0] if dims else None, keepdim and bool(dims))

        @staticmethod
        def reference(x, dims, keepdim):
            front = np.moveaxis(x, dims, tuple(range(len(dims))))
            flat = front.reshape(product(x.shape[d] for d in dims), *front.shape[len(dims) :])
            found = np.asarray(getattr(np, name)(flat, axis=0)).astype(np.int64)
            return found.reshape([1 if i in dims else d for i, d in enumerate(x.shape)]) if keepdim else found

        @staticmethod
        def lower(b, x, dims, keepdim):
            return b.arg(x, dims, name == "argmax", keepdim)[1]

    return Position


Argmax = _position("argmax", "The first position of the largest element along `dims`; a NaN counts as largest.")
Argmin = _position("argmin", "The first position of the smallest element along `dims`; a NaN counts as smallest.")


def _pt(dtype: str) -> Any:
    return getattr(pt, DTYPES[dtype].torch)


def _fold(function: Callable[..., Any], x: Any, dims: tuple, keepdim: bool, dtype: str) -> Any:
    from ..interpret import numpy_dtype

    with np.errstate(all="ignore"):
        value = wide(x) if is_float(dtype) else x.astype(numpy_dtype(dtype))
        return np.asarray(function(value, axis=dims, keepdims=keepdim)).astype(numpy_dtype(dtype))
