"""Operands written side by side."""

from __future__ import annotations

from ..dims import Dim
from ..lazy import np, pt
from ..op import Attr, Op, Result, Variadic, check, normalize_dim, sample
from ..record import TensorType
from .binary import same_dtype


class Concat(Op, name="concat", category="concat"):
    """The operands one after another along `dim`; their other sizes and dtypes are equal."""

    xs: Variadic
    dim: Attr[int]
    y: Result

    samples = (
        sample((2, 3), (2, 1), (2, 2), dim=1),
        sample(("i64", (2, 3)), ("i64", (4, 3)), dim=-2),
        sample((0, 3), (2, 3), dim=0),
        sample(("bool", (3,)), dim=0),
    )

    @staticmethod
    def infer(xs, dim):
        check(bool(xs), "takes one operand or more")
        dtype = same_dtype(*xs)
        check(xs[0].rank > 0, "cannot concatenate 0-d tensors")
        dim = normalize_dim(dim, xs[0].rank)
        total: Dim = 0
        for x in xs:
            others = [a == b for i, (a, b) in enumerate(zip(x.shape, xs[0].shape)) if i != dim]
            check(x.rank == xs[0].rank and all(others), f"{x} beside {xs[0]} along dim {dim}")
            total = total + x.shape[dim]
        return TensorType(dtype, (*xs[0].shape[:dim], total, *xs[0].shape[dim + 1 :]))

    @staticmethod
    def torch(*xs, dim):
        return pt.cat(xs, dim)

    @staticmethod
    def reference(xs, dim):
        return np.concatenate(xs, dim)

    @staticmethod
    def lower(b, xs, dim):
        return b.concat(xs, normalize_dim(dim, xs[0].rank))
