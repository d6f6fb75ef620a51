"""Softmax and its logarithm: rows normalised along one dim, computed in f32 for f16 and bf16 and rounded once."""

from __future__ import annotations

from ..dtypes import is_float
from ..lazy import np, pt, wide
from ..op import Attr, Op, Operand, Result, check, normalize_dim, sample
from ..record import TensorType
from .lowering import computed


def _infer(x: TensorType, dim: int) -> TensorType:
    check(is_float(x.dtype), f"takes a float tensor, got {x.dtype}")
    normalize_dim(dim, x.rank)
    return x


_SAMPLES = (
    sample((4, 9), dim=-1),
    sample((3, 5, 4), dim=1),
    sample((), dim=0),
    sample(("bf16", (3, 17)), dim=1),
    sample(("f64", (2, 3)), dim=0),
    sample(lambda rng: np.array([[1, -np.inf, 2], [-np.inf] * 3, [np.nan, 0, 1]], np.float32), dim=1),
)


class Softmax(Op, name="softmax", category="row"):
    """`exp(x - max) / sum(exp(x - max))` along `dim`; a row of -inf only, or with a NaN, is NaN."""

    x: Operand
    dim: Attr[int]
    y: Result

    infer = staticmethod(_infer)
    samples = _SAMPLES
    numerics = "order"

    @staticmethod
    def torch(x, dim):
        return pt.softmax(x, dim)

    @staticmethod
    def reference(x, dim):
        e = _exponentials(x, dim)[1]
        return (e / e.sum(dim if x.ndim else None, keepdims=True)).astype(x.dtype)

    @staticmethod
    def lower(b, x, dim):
        dims = (normalize_dim(dim, x.rank),) if x.rank else ()
        v = computed(b, x)
        shifted = b.sub(v, b.amax(v, dims, keepdim=True))
        e = b.exp_nonpositive(shifted, any_scale=True)
        # One division a row, not one an element; the sum is at least e of 0, so its reciprocal is an ordinary number.
        return b.cast(b.mul(e, b.reciprocal(b.sum(e, dims, keepdim=True))), x.dtype)


class LogSoftmax(Op, name="log_softmax", category="row"):
    """`(x - max) - log(sum(exp(x - max)))` along `dim`."""

    x: Operand
    dim: Attr[int]
    y: Result

    infer = staticmethod(_infer)
    samples = _SAMPLES
    numerics = "order"

    @staticmethod
    def torch(x, dim):
        return pt.log_softmax(x, dim)

    @staticmethod
    def reference(x, dim):
        shifted, e = _exponentials(x, dim)
        return (shifted - np.log(e.sum(dim if x.ndim else None, keepdims=True))).astype(x.dtype)

    @staticmethod
    def lower(b, x, dim):
        dims = (normalize_dim(dim, x.rank),) if x.rank else ()
        v = computed(b, x)
        shifted = b.sub(v, b.amax(v, dims, keepdim=True))
        return b.cast(b.sub(shifted, b.log(b.sum(b.exp_nonpositive(shifted), dims, keepdim=True))), x.dtype)


def _exponentials(x, dim):
    with np.errstate(invalid="ignore"):
        shifted = wide(x) - wide(x).max(dim if x.ndim else None, keepdims=True, initial=-np.inf)
        return shifted, np.exp(shifted)
