"""Layer, RMS and group normalisation: rows centred and scaled, computed in f32 for f16 and bf16 and rounded once.

Batch normalisation is no op: with running statistics it is `x * a + c` per channel, with `a` and `c` from weights alone,
and with batch statistics `var_mean` and pointwise ops, so both are compositions (`frontend/aten/normalization.py`).
"""

from __future__ import annotations

from math import prod

from ..dtypes import is_float, promote
from ..lazy import np, pt, wide
from ..op import Attr, Op, Operand, OptionalOperand, Result, check, sample
from ..record import TensorType
from .lowering import computed


class LayerNorm(Op, name="layer_norm", category="row"):
    """`y = (x - mean) * rstd * weight + bias` over the last `dims` dims, `rstd = 1 / sqrt(mean((x - mean)²) + eps)`.

    `mean` and `rstd` keep the dims as 1; they are f32 where the weight is wider than `x`.
    """

    x: Operand
    weight: OptionalOperand
    bias: OptionalOperand
    dims: Attr[int]
    eps: Attr[float] = 1e-5
    y: Result
    mean: Result
    rstd: Result

    numerics = "order"
    samples = (
        sample((3, 16), (16,), (16,), dims=1, eps=1e-5),
        sample((2, 3, 4), None, None, dims=2, eps=1e-3),
        sample((2, 3, 4), (4,), None, dims=1, eps=1e-5),
        sample(("bf16", (2, 9)), ("bf16", (9,)), ("bf16", (9,)), dims=1, eps=1e-5),
        sample(("bf16", (2, 9)), ("f32", (9,)), ("f32", (9,)), dims=1, eps=1e-5),
        sample((3, 33), None, None, dims=1, eps=1e-5, low=29.0, high=31.0),
    )

    @staticmethod
    def infer(x, weight, bias, dims, eps):
        check(is_float(x.dtype), f"takes a float tensor, got {x.dtype}")
        check(
            0 < dims <= x.rank, f"normalises the last {dims} dims of a rank-{x.rank} tensor; 1..{x.rank} are possible"
        )
        _check_parameters(x.shape[x.rank - dims :], weight, bias)
        statistics = TensorType(_statistics_dtype(x, weight, bias), (*x.shape[: x.rank - dims], *([1] * dims)))
        return x, statistics, statistics

    @staticmethod
    def torch(x, weight, bias, dims, eps):
        return pt.ops.aten.native_layer_norm(x, x.shape[x.ndim - dims :], weight, bias, eps)

    @staticmethod
    def reference(x, weight, bias, dims, eps):
        axes = tuple(range(x.ndim - dims, x.ndim))
        mean, rstd = _moments(x, axes, eps)
        y = (wide(x) - mean) * rstd
        y = y if weight is None else y * wide(weight)
        y = y if bias is None else y + wide(bias)
        narrow = next(
            (p.dtype for p in (weight, bias) if p is not None and p.dtype.itemsize > x.dtype.itemsize), x.dtype
        )
        return y.astype(x.dtype), mean.astype(narrow), rstd.astype(narrow)

    @staticmethod
    def lower(b, x, weight, bias, dims, eps):
        axes = tuple(range(x.rank - dims, x.rank))
        centred, mean, rstd = _centre(b, x, axes, eps)
        y = _affine(b, b.mul(centred, rstd), weight, bias)
        narrow = _statistics_dtype(x.type, weight and weight.type, bias and bias.type)
        return b.cast(y, x.dtype), b.cast(mean, narrow), b.cast(rstd, narrow)


class RmsNorm(Op, name="rms_norm", category="row"):
    """`x / sqrt(mean(x²) + eps) * weight` over the last `dims` dims."""

    x: Operand
    weight: OptionalOperand
    dims: Attr[int]
    eps: Attr[float]
    y: Result

    numerics = "order"
    samples = (
        sample((3, 16), (16,), dims=1, eps=1e-6),
        sample((2, 3, 4), None, dims=2, eps=1e-3),
        sample(("bf16", (2, 9)), ("bf16", (9,)), dims=1, eps=1e-6),
    )

    @staticmethod
    def infer(x, weight, dims, eps):
        check(is_float(x.dtype), f"takes a float tensor, got {x.dtype}")
        check(
            0 < dims <= x.rank, f"normalises the last {dims} dims of a rank-{x.rank} tensor; 1..{x.rank} are possible"
        )
        _check_parameters(x.shape[x.rank - dims :], weight, None)
        return x

    @staticmethod
    def torch(x, weight, dims, eps):
        return pt.nn.functional.rms_norm(x, x.shape[x.ndim - dims :], weight, eps)

    @staticmethod
    def reference(x, weight, dims, eps):
        v = wide(x)
        y = v / np.sqrt((v * v).mean(tuple(range(x.ndim - dims, x.ndim)), keepdims=True) + eps)
        return (y if weight is None else y * wide(weight)).astype(x.dtype)

    @staticmethod
    def lower(b, x, weight, dims, eps):
        axes = tuple(range(x.rank - dims, x.rank))
        v = computed(b, x)
        y = b.mul(v, b.rsqrt(b.add(b.mean(b.mul(v, v), axes, keepdim=True), eps)))
        return b.cast(_affine(b, y, weight, None), x.dtype)


class GroupNorm(Op, name="group_norm", category="row"):
    """`y = (x - mean) * rstd * weight + bias` with the moments of each of `groups` groups of channels of `[N, C, …]`.

    `mean` and `rstd` are `[N, groups]`; `weight` and `bias` are per channel.
    """

    x: Operand
    weight: OptionalOperand
    bias: OptionalOperand
    groups: Attr[int]
    eps: Attr[float] = 1e-5
    y: Result
    mean: Result
    rstd: Result

    numerics = "order"
    samples = (
        sample((2, 6, 3, 2), (6,), (6,), groups=3, eps=1e-5),
        sample((2, 4, 5), None, None, groups=2, eps=1e-5),
        sample((3, 4), (4,), (4,), groups=2, eps=1e-5),
        sample(("bf16", (2, 4, 5)), ("bf16", (4,)), ("bf16", (4,)), groups=1, eps=1e-5),
    )

    @staticmethod
    def infer(x, weight, bias, groups, eps):
        check(is_float(x.dtype), f"takes a float tensor, got {x.dtype}")
        check(x.rank >= 2, f"takes an [N, C, …] tensor, got rank {x.rank}")
        channels = x.shape[1]
        check(isinstance(channels, int), "needs a static number of channels")
        check(groups > 0 and channels % groups == 0, f"{channels} channels do not divide into {groups} groups")
        _check_parameters((channels,), weight, bias)
        statistics = TensorType(_statistics_dtype(x, weight, bias), (x.shape[0], groups))
        return x, statistics, statistics

    @staticmethod
    def torch(x, weight, bias, groups, eps):
        n, c = x.shape[:2]
        return pt.ops.aten.native_group_norm(x, weight, bias, n, c, x[0, 0].numel(), groups, eps)

    @staticmethod
    def reference(x, weight, bias, groups, eps):
        rows = x.reshape(x.shape[0], groups, prod(x.shape[1:]) // groups)
        mean, rstd = _moments(rows, (2,), eps)
        y = ((wide(rows) - mean) * rstd).reshape(x.shape)
        channel = (-1, *([1] * (x.ndim - 2)))
        y = y if weight is None else y * wide(weight).reshape(channel)
        y = y if bias is None else y + wide(bias).reshape(channel)
        narrow = next(
            (p.dtype for p in (weight, bias) if p is not None and p.dtype.itemsize > x.dtype.itemsize), x.dtype
        )
        return y.astype(x.dtype), mean[..., 0].astype(narrow), rstd[..., 0].astype(narrow)

    @staticmethod
    def lower(b, x, weight, bias, groups, eps):
        n, channels, *spatial = x.shape
        # [N, G, C / G, …]: the group is a reshape, so that weights still broadcast by channel
        grouped = b.reshape(x, (n, groups, channels // groups, *spatial))
        centred, mean, rstd = _centre(b, grouped, tuple(range(2, grouped.rank)), eps)
        channel = (groups, channels // groups, *([1] * len(spatial)))
        weight = weight and b.reshape(weight, channel)
        bias = bias and b.reshape(bias, channel)
        y = b.reshape(b.cast(_affine(b, b.mul(centred, rstd), weight, bias), x.dtype), x.shape)
        narrow = _statistics_dtype(x.type, weight and weight.type, bias and bias.type)
        return y, *(b.reshape(b.cast(v, narrow), (n, groups)) for v in (mean, rstd))


def _check_parameters(shape, weight, bias):
    for name, p in (("weight", weight), ("bias", bias)):
        if p is not None:
            check(p.shape == tuple(shape), f"{name} has shape {list(p.shape)}, the normalised dims are {list(shape)}")
            check(is_float(p.dtype), f"{name} must be a float tensor, got {p.dtype}")


def _statistics_dtype(x, weight, bias):
    """Moments have the parameters' precision when it is the wider one (torch: mixed f32 parameters of bf16 inputs)."""
    dtype = x.dtype
    for p in (weight, bias):
        dtype = dtype if p is None else promote(dtype, p.dtype)
    return dtype


def _moments(x, axes, eps):
    v = wide(x)
    mean = v.mean(axes, keepdims=True)
    return mean, 1 / np.sqrt(((v - mean) ** 2).mean(axes, keepdims=True) + eps)


def _centre(b, x, axes, eps):
    """`x - mean`, `mean` and `rstd` in the wide type; two passes, since one-pass variances cancel for large means."""
    v = computed(b, x)
    mean = b.mean(v, axes, keepdim=True)
    centred = b.sub(v, mean)
    variance = b.mean(b.mul(centred, centred), axes, keepdim=True)
    return centred, mean, b.rsqrt(b.add(variance, eps))


def _affine(b, y, weight, bias):
    """`y * weight + bias`, each part optional and broadcast, in the type of `y`."""
    y = y if weight is None else b.mul(y, b.cast(weight, y.dtype))
    return y if bias is None else b.add(y, b.cast(bias, y.dtype))
