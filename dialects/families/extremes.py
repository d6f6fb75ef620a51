"""Reductions that choose or test elements along `dims`: amax, amin, any, all, argmax, argmin. NaN wins; the first of equals.

`dims` and `keepdim` as in `reduction`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..lazy import np, pt
from ..op import Attr, Ints, Op, Operand, Result, check, sample
from ..record import TensorType
from .reduction import EMPTY, SHAPES, reduced_shape


def _nonempty(x: TensorType, dims: tuple[int, ...]) -> None:
    check(all(x.shape[d] != 0 for d in dims), f"no elements to choose from in {x} along {list(dims)}")


def _choose(name: str, doc: str, fold: Callable[..., Any]) -> type:
    """amax and amin: of every dtype, NaN wins."""

    class Choose(Op, name=name, category="reduction"):
        __doc__ = doc
        x: Operand
        dims: Attr[Ints]
        keepdim: Attr[bool] = False
        y: Result

        samples = (
            *SHAPES,
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
            *SHAPES,
            *EMPTY,
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
            *(s for s in SHAPES if len(s.attributes["dims"]) == 1),
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
            flat = front.reshape(math.prod(x.shape[d] for d in dims), *front.shape[len(dims) :])
            found = np.asarray(getattr(np, name)(flat, axis=0)).astype(np.int64)
            return found.reshape([1 if i in dims else d for i, d in enumerate(x.shape)]) if keepdim else found

        @staticmethod
        def lower(b, x, dims, keepdim):
            return b.arg(x, dims, name == "argmax", keepdim)[1]

    return Position


Argmax = _position("argmax", "The first position of the largest element along `dims`; a NaN counts as largest.")
Argmin = _position("argmin", "The first position of the smallest element along `dims`; a NaN counts as smallest.")
