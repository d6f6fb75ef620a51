"""Gradients of softmax and of the normalisations, as compositions in the wide type, rounded once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .registry import Value, aten
from .tensor_math import T


@aten("_softmax_backward_data")
def softmax_backward(c: Any, grad: Value, y: Value, dim: int, dtype: str) -> Value:
    """`y (g - sum(g y))`."""
    g, p = T(c, grad).wide(), T(c, y).wide()
    return (p * (g - _along(g * p, dim))).to(dtype).value


@aten("_log_softmax_backward_data")
def log_softmax_backward(c: Any, grad: Value, y: Value, dim: int, dtype: str) -> Value:
    """`g - exp(y) sum(g)`."""
    g, log_p = T(c, grad).wide(), T(c, y).wide()
    return (g - log_p.exp() * _along(g, dim)).to(dtype).value


def _along(t: T, dim: int) -> T:
    return t.sum((dim,), keepdim=True) if t.rank else t


@aten("native_layer_norm_backward")
def layer_norm_backward(
    c: Any,
    grad: Value,
    x: Value,
    shape: Sequence[Any],
    mean: Value,
    rstd: Value,
    weight: Value | None,
    bias: Value | None,
    mask: Sequence[bool],
) -> tuple:
    """`dx = rstd (h - mean(h) - n mean(h n))` with `n = (x - mean) rstd` and `h = g weight`, means over the row."""
    t = T(c, x)
    g, m, r = T(c, grad).wide(), T(c, mean).wide(), T(c, rstd).wide()
    normal = (t.wide() - m) * r
    inner = tuple(range(t.rank - len(shape), t.rank))
    outer = tuple(range(t.rank - len(shape)))
    h = g if weight is None else g * T(c, weight).wide()
    dx = (r * (h - h.mean(inner, keepdim=True) - normal * (h * normal).mean(inner, keepdim=True))).to(t.dtype)
    return (
        dx.value if mask[0] else None,
        (g * normal).sum(outer).to(c.type(weight).dtype).value if mask[1] and weight is not None else None,
        g.sum(outer).to(c.type(bias).dtype).value if mask[2] and bias is not None else None,
    )


@aten("_fused_rms_norm_backward")
def rms_norm_backward(
    c: Any, grad: Value, x: Value, shape: Sequence[Any], rstd: Value, weight: Value | None, mask: Sequence[bool]
) -> tuple:
    """`dx = r (h - n mean(h n))` with `n = x r` and `h = g weight`."""
    t = T(c, x)
    g, r = T(c, grad).wide(), T(c, rstd).wide()
    normal = t.wide() * r
    inner = tuple(range(t.rank - len(shape), t.rank))
    outer = tuple(range(t.rank - len(shape)))
    h = g if weight is None else g * T(c, weight).wide()
    dx = (r * (h - normal * (h * normal).mean(inner, keepdim=True))).to(t.dtype)
    dw = (g * normal).sum(outer).to(c.type(weight).dtype).value if mask[1] and weight is not None else None
    return dx.value if mask[0] else None, dw


@aten("native_group_norm_backward")
def group_norm_backward(
    c: Any,
    grad: Value,
    x: Value,
    mean: Value,
    rstd: Value,
    weight: Value | None,
    n: Any,
    channels: Any,
    spatial: Any,
    groups: int,
    mask: Sequence[bool],
) -> tuple:
    """As layer_norm_backward, with rows of one group: `[N, G, C / G, spatial]`."""
    t = T(c, x)
    grouped = (n, groups, channels // groups, spatial)
    g = T(c, grad).wide().reshape(*grouped)
    m, r = (T(c, v).wide().reshape(n, groups, 1, 1) for v in (mean, rstd))
    normal = (t.wide().reshape(*grouped) - m) * r
    h = g if weight is None else g * T(c, weight).wide().reshape(groups, channels // groups, 1)
    dx = r * (h - h.mean((2, 3), keepdim=True) - normal * (h * normal).mean((2, 3), keepdim=True))
    kept = c.type(weight).dtype if weight is not None else t.dtype
    return (
        dx.to(t.dtype).reshape(*t.shape).value if mask[0] else None,
        (g * normal).sum((0, 3)).reshape(channels).to(kept).value if mask[1] else None,
        g.sum((0, 3)).reshape(channels).to(kept).value if mask[2] else None,
    )


@aten("native_batch_norm_backward")
def batch_norm_backward(
    c: Any,
    grad: Value,
    x: Value,
    weight: Value | None,
    running_mean: Value | None,
    running_variance: Value | None,
    save_mean: Value | None,
    save_rstd: Value | None,
    train: bool,
    eps: float,
    mask: Sequence[bool],
) -> tuple:
    """Per channel; with running statistics the moments are constants, so `dx = g weight rstd`."""
    t, g = T(c, x), T(c, grad).wide()
    dims = (0, *range(2, t.rank))
    channel = (t.shape[1], *([1] * (t.rank - 2)))
    if train:
        m, r = T(c, _given(save_mean)).to(g.dtype), T(c, _given(save_rstd)).to(g.dtype)
    else:
        m = T(c, _given(running_mean)).to(g.dtype)
        r = (T(c, _given(running_variance)).to(g.dtype) + float(eps)).rsqrt()
    normal = (t.wide() - m.reshape(*channel)) * r.reshape(*channel)
    scale = (r if weight is None else r * T(c, weight).to(g.dtype)).reshape(*channel)
    if train:
        centred = g - g.mean(dims, keepdim=True) - normal * (g * normal).mean(dims, keepdim=True)
    else:
        centred = g
    kept = c.type(weight).dtype if weight is not None else g.dtype
    return (
        (centred * scale).to(t.dtype).value if mask[0] else None,
        (g * normal).sum(dims).to(kept).value if mask[1] else None,
        g.sum(dims).to(kept).value if mask[2] else None,
    )


@aten("batch_norm_backward")
def batch_norm_backward_with_reserve(
    c: Any,
    grad: Value,
    x: Value,
    weight: Value,
    running_mean: Value | None,
    running_variance: Value | None,
    save_mean: Value | None,
    save_rstd: Value | None,
    update: bool,
    eps: float,
    mask: Sequence[bool],
    reserve: Value,
) -> tuple:
    return batch_norm_backward(
        c, grad, x, weight, running_mean, running_variance, save_mean, save_rstd, update, eps, mask
    )


def _given(value: Value | None) -> Value:
    assert value is not None, "torch passes the statistics that the mode needs"
    return value


@aten("_weight_norm_interface_backward")
def weight_norm_backward(c: Any, grad: Value, v: Value, g: Value, norms: Value, dim: int) -> tuple[Value, Value]:
    """`dg = d / n` and `dv = g / n (h - v d / n²)` with `d = sum(h v)` over all dims but `dim`, of the gradient `h`."""
    t, h = T(c, v).wide(), T(c, grad).wide()
    others = [d for d in range(t.rank) if d != dim % t.rank]
    norm, scale = T(c, norms).to(t.dtype), T(c, g).to(t.dtype)
    dot = (h * t).sum(others, keepdim=True)
    dv = (scale / norm) * (h - t * (dot / (norm * norm)))
    return dv.to(c.type(v).dtype).value, (dot / norm).to(c.type(g).dtype).value
