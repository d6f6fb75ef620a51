"""ATen's softmax and normalisation ops.

Batch normalisation is composed: with running statistics it is `x * a + b` per channel, where `a` and `b` depend on
parameters only (so they are computed once, ahead of the calls), and with batch statistics it reduces over all other dims.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .registry import Value, aten, require
from .tensor_math import T

_EPSILON = {"f64": 2.0**-52}  # torch's default eps of rms_norm is that of the type it computes in


@aten("_softmax")
def softmax(c: Any, x: Value, dim: int, half_to_float: bool) -> Value:
    return c.op("softmax", c.cast(x, "f32") if half_to_float else x, dim=dim)


@aten("_log_softmax")
def log_softmax(c: Any, x: Value, dim: int, half_to_float: bool) -> Value:
    return c.op("log_softmax", c.cast(x, "f32") if half_to_float else x, dim=dim)


@aten("softmax.int", "special_softmax")
def softmax_int(c: Any, x: Value, dim: int, dtype: str | None = None) -> Value:
    return c.op("softmax", c.cast(x, dtype or c.out_type.dtype), dim=dim)


@aten("log_softmax.int", "special_log_softmax")
def log_softmax_int(c: Any, x: Value, dim: int, dtype: str | None = None) -> Value:
    return c.op("log_softmax", c.cast(x, dtype or c.out_type.dtype), dim=dim)


@aten("_safe_softmax")
def safe_softmax(c: Any, x: Value, dim: int, dtype: str | None = None) -> Value:
    """Softmax with zeros for a row of -inf only."""
    t = T(c, x) if dtype is None else T(c, x).to(dtype)
    if not t.rank:
        return c.op("softmax", t.value, dim=dim)
    lost = t.op("amax", dims=(dim % t.rank,), keepdim=True).eq(float("-inf"))
    return lost.where(0.0, t.op("softmax", dim=dim)).value


@aten("native_layer_norm")
def native_layer_norm(
    c: Any, x: Value, shape: Sequence[Any], weight: Value | None, bias: Value | None, eps: float
) -> tuple[Value, ...]:
    dtype = c.type(x).dtype
    if c.out_type[1].dtype == dtype:
        return c.op("layer_norm", x, weight, bias, dims=len(shape), eps=float(eps))
    # on GPUs the statistics of 16-bit values are f32
    wide = [None if v is None else c.cast(v, c.out_type[1].dtype) for v in (x, weight, bias)]
    y, mean, rstd = c.op("layer_norm", *wide, dims=len(shape), eps=float(eps))
    return c.cast(y, dtype), mean, rstd


@aten("layer_norm")
def layer_norm(
    c: Any, x: Value, shape: Sequence[Any], weight: Any = None, bias: Any = None, eps: float = 1e-5, cudnn: bool = True
) -> Value:
    return c.op("layer_norm", x, weight, bias, dims=len(shape), eps=float(eps))[0]


@aten("rms_norm")
def rms_norm(c: Any, x: Value, shape: Sequence[Any], weight: Value | None = None, eps: float | None = None) -> Value:
    dtype = c.type(x).dtype
    require(weight is None or c.type(weight).dtype == dtype, "a weight of another type")
    return c.op(
        "rms_norm", x, weight, dims=len(shape), eps=_EPSILON.get(dtype, 2.0**-23) if eps is None else float(eps)
    )


@aten("_fused_rms_norm")
def fused_rms_norm(c: Any, x: Value, shape: Sequence[Any], weight: Value | None, eps: float | None) -> tuple:
    """The reciprocal deviation, which only a backward pass reads, is left to eager."""
    return rms_norm(c, x, shape, weight, eps), None


@aten("native_group_norm")
def native_group_norm(
    c: Any, x: Value, weight: Any, bias: Any, n: Any, channels: Any, spatial: Any, groups: int, eps: float
) -> tuple[Value, ...]:
    return c.op("group_norm", x, weight, bias, groups=groups, eps=float(eps))


@aten("group_norm")
def group_norm(
    c: Any, x: Value, groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, cudnn: bool = True
) -> Value:
    return c.op("group_norm", x, weight, bias, groups=groups, eps=float(eps))[0]


# -- batch normalisation --------------------------------------------------------------------------------------
@aten("_native_batch_norm_legit_no_training")
def batch_norm_no_training(
    c: Any, x: Value, weight: Any, bias: Any, mean: Value, variance: Value, momentum: float, eps: float
) -> tuple:
    return batch_norm_inference(c, x, weight, bias, mean, variance, eps), _nothing(c, 1), _nothing(c, 2)


@aten("_batch_norm_no_update")
def batch_norm_no_update(
    c: Any, x: Value, weight: Any, bias: Any, mean: Value, variance: Value, momentum: float, eps: float
) -> tuple:
    return (
        batch_norm_inference(c, x, weight, bias, mean, variance, eps),
        _nothing(c, 1),
        _nothing(c, 2),
        c.scalar(0, "u8", (0,)),
    )


@aten("batch_norm")
def batch_norm(
    c: Any,
    x: Value,
    weight: Any,
    bias: Any,
    mean: Any,
    variance: Any,
    training: bool,
    momentum: float,
    eps: float,
    cudnn: bool,
) -> Value:
    if not training:
        return batch_norm_inference(c, x, weight, bias, mean, variance, eps)
    require(mean is None and variance is None, "running statistics that change")
    return batch_norm_training(c, x, weight, bias, eps)[0].value


@aten("native_batch_norm", "_native_batch_norm_legit")
def native_batch_norm(
    c: Any,
    x: Value,
    weight: Any,
    bias: Any,
    mean: Any,
    variance: Any,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple:
    if not training:
        return batch_norm_inference(c, x, weight, bias, mean, variance, eps), _nothing(c, 1), _nothing(c, 2)
    require(mean is None and variance is None, "running statistics that change")
    y, batch_mean, rstd, _ = batch_norm_training(c, x, weight, bias, eps)
    return y.value, batch_mean.value, rstd.value


@aten("_native_batch_norm_legit.no_stats")
def batch_norm_no_stats(c: Any, x: Value, weight: Any, bias: Any, training: bool, momentum: float, eps: float) -> tuple:
    require(training, "no statistics to use")
    y, mean, rstd, _ = batch_norm_training(c, x, weight, bias, eps)
    return y.value, mean.value, rstd.value


@aten("_native_batch_norm_legit_functional")
def batch_norm_functional(
    c: Any,
    x: Value,
    weight: Any,
    bias: Any,
    mean: Value,
    variance: Value,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple:
    """Also gives the running statistics after the step: `(1 - momentum) * old + momentum * batch`, variance unbiased."""
    old_mean, old_variance = T(c, mean), T(c, variance)
    kept = c.out_type[-2].dtype  # torch's fake kernels widen halves
    if not training:
        y = batch_norm_inference(c, x, weight, bias, mean, variance, eps)
        return y, _nothing(c, 1), _nothing(c, 2), old_mean.to(kept).value, old_variance.to(kept).value
    y, batch_mean, rstd, unbiased = batch_norm_training(c, x, weight, bias, eps)
    new_mean = _blend(old_mean, batch_mean, momentum).to(kept)
    new_variance = _blend(old_variance, unbiased, momentum).to(kept)
    return y.value, batch_mean.value, rstd.value, new_mean.value, new_variance.value


@aten("_batch_norm_with_update_functional")
def batch_norm_with_update(
    c: Any, x: Value, weight: Any, bias: Any, mean: Value, variance: Value, momentum: float, eps: float
) -> tuple:
    y, batch_mean, rstd, new_mean, new_variance = batch_norm_functional(
        c, x, weight, bias, mean, variance, True, momentum, eps
    )
    return y, batch_mean, rstd, c.scalar(0, "u8", (0,)), new_mean, new_variance  # the 0 bytes are cuDNN's


def _nothing(c: Any, result: int) -> Value | None:
    """Result number `result` where eager gives no elements; None (not ours) where it gives some."""
    type = c.out_type[result]
    return c.scalar(0.0, type.dtype, type.shape) if type is not None and 0 in type.shape else None


def batch_norm_inference(c: Any, x: Value, weight: Any, bias: Any, mean: Value, variance: Value, eps: float) -> Value:
    """`x * a + b` with `a = weight / sqrt(variance + eps)` and `b = bias - mean * a`, as eager computes it."""
    t = T(c, x)
    wide = t.wide()
    a = (T(c, variance).to(wide.dtype) + float(eps)).rsqrt()
    a = a if weight is None else a * T(c, weight).to(wide.dtype)
    b = -(T(c, mean).to(wide.dtype) * a)
    b = b if bias is None else T(c, bias).to(wide.dtype) + b
    channel = (t.shape[1], *([1] * (t.rank - 2)))
    return (wide * a.reshape(*channel) + b.reshape(*channel)).to(t.dtype).value


def batch_norm_training(c: Any, x: Value, weight: Any, bias: Any, eps: float) -> tuple[T, T, T, T]:
    """`y`, batch mean, `1 / sqrt(batch variance + eps)`, and the unbiased batch variance."""
    t = T(c, x)
    dims = (0, *range(2, t.rank))
    channel = (t.shape[1], *([1] * (t.rank - 2)))
    wide = t.wide()
    mean = wide.mean(dims)
    centred = wide - mean.reshape(*channel)
    squares = (centred * centred).sum(dims)
    count = t.numel(*dims)
    rstd = (squares / T(c, c.scalar(count, wide.dtype)) + float(eps)).rsqrt()
    unbiased = squares / T(c, c.scalar(count - 1, wide.dtype))
    scale = rstd if weight is None else rstd * T(c, weight).to(wide.dtype)
    y = centred * scale.reshape(*channel)
    y = y if bias is None else y + T(c, bias).to(wide.dtype).reshape(*channel)
    given = c.out_type[1] if isinstance(c.out_type, tuple) else None
    kept = wide.dtype if given is None else given.dtype
    return y.to(t.dtype), mean.to(kept), rstd.to(kept), unbiased


def _blend(old: T, new: T, momentum: float) -> T:
    wide = old.wide()
    return wide * (1.0 - momentum) + new.to(wide.dtype) * float(momentum)


@aten("_weight_norm_interface")
def weight_norm(c: Any, v: Value, g: Value, dim: int = 0) -> tuple[Value, Value]:
    """`v * (g / norm)` and the norms, over all dims of `v` but `dim`."""
    t = T(c, v)
    wide = t.wide()
    others = [d for d in range(t.rank) if d != dim % t.rank]
    norm = (wide * wide).sum(others, keepdim=True).op("sqrt")
    return (wide * (T(c, g).to(wide.dtype) / norm)).to(t.dtype).value, norm.to(c.out_type[1].dtype).value
