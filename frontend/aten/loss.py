"""ATen's losses and their gradients, as compositions.

Reductions are torch's numbers: 0 none, 1 mean, 2 sum. Element losses of f16 and bf16 are rounded before they are
reduced, as in eager, where the element loss is a tensor.
"""

from __future__ import annotations

from typing import Any

import torch

from .promotion import is_half
from .registry import Value, aten, require
from .tensor_math import T

NONE, MEAN, SUM = 0, 1, 2


def _reduced(t: T, dtype: str, reduction: int) -> Value:
    t = t.to(dtype)
    dims = tuple(range(t.rank))
    if reduction == NONE or not dims:
        return t.value
    return (t.mean(dims) if reduction == MEAN else t.sum(dims)).value


def _pair(c: Any, x: Value, y: Value) -> tuple[T, T, str]:
    """Both operands in the wide form of their common type, and that type."""
    (a, b), dtype = c.promote(x, y)
    return T(c, a).wide(), T(c, b).wide(), dtype


def _scaled(grad: T, like: T, reduction: int) -> T:
    """The gradient of each element loss, from that of the reduced one."""
    grad = grad.to(like.dtype)
    return grad / like.size(*range(like.rank)) if reduction == MEAN else grad


# -- regression -------------------------------------------------------------------------------------------------
@aten("mse_loss")
def mse_loss(c: Any, x: Value, target: Value, reduction: int = MEAN) -> Value:
    a, b, dtype = _pair(c, x, target)
    d = a - b
    return _reduced(d * d, dtype, reduction)


@aten("mse_loss_backward")
def mse_loss_backward(c: Any, grad: Value, x: Value, target: Value, reduction: int) -> Value:
    a, b, dtype = _pair(c, x, target)
    d = a - b
    return ((d * 2.0) * _scaled(T(c, grad), d, reduction)).to(dtype).value


@aten("l1_loss")
def l1_loss(c: Any, x: Value, target: Value, reduction: int = MEAN) -> Value:
    a, b, dtype = _pair(c, x, target)
    return _reduced((a - b).abs(), dtype, reduction)


@aten("smooth_l1_loss")
def smooth_l1_loss(c: Any, x: Value, target: Value, reduction: int = MEAN, beta: float = 1.0) -> Value:
    """`d² / (2 beta)` where `|d| < beta`, else `|d| - beta / 2`."""
    if beta == 0:
        return l1_loss(c, x, target, reduction)
    a, b, dtype = _pair(c, x, target)
    d = (a - b).abs()
    return _reduced(d.lt(float(beta)).where(d * 0.5 * d / float(beta), d - 0.5 * beta), dtype, reduction)


@aten("smooth_l1_loss_backward")
def smooth_l1_loss_backward(c: Any, grad: Value, x: Value, target: Value, reduction: int, beta: float) -> Value:
    a, b, dtype = _pair(c, x, target)
    d = a - b
    slope = d.op("sign") if beta == 0 else d.abs().lt(float(beta)).where(d / float(beta), d.op("sign"))
    return (slope * _scaled(T(c, grad), d, reduction)).to(dtype).value


@aten("huber_loss")
def huber_loss(c: Any, x: Value, target: Value, reduction: int = MEAN, delta: float = 1.0) -> Value:
    """`d² / 2` where `|d| <= delta`, else `delta (|d| - delta / 2)`."""
    a, b, dtype = _pair(c, x, target)
    d = (a - b).abs()
    return _reduced(d.le(float(delta)).where(d * 0.5 * d, (d - 0.5 * delta) * float(delta)), dtype, reduction)


@aten("huber_loss_backward")
def huber_loss_backward(c: Any, grad: Value, x: Value, target: Value, reduction: int, delta: float) -> Value:
    a, b, dtype = _pair(c, x, target)
    d = a - b
    slope = d.abs().le(float(delta)).where(d, d.op("sign") * float(delta))
    return (slope * _scaled(T(c, grad), d, reduction)).to(dtype).value


# -- probabilities ----------------------------------------------------------------------------------------------
@aten("binary_cross_entropy")
def binary_cross_entropy(c: Any, x: Value, target: Value, weight: Value | None = None, reduction: int = MEAN) -> Value:
    """`-(y log p + (1 - y) log(1 - p)) w`, each logarithm at least -100."""
    p, y, dtype = _pair(c, x, target)
    require(dtype == c.type(x).dtype, "operands of different types")
    log_p = p.log().op("maximum", -100.0)
    log_q = (-p).op("log1p").op("maximum", -100.0)
    loss = (y - 1.0) * log_q - y * log_p
    loss = loss if weight is None else loss * T(c, weight).to(loss.dtype)
    return _reduced(loss, dtype, reduction)


@aten("binary_cross_entropy_backward")
def binary_cross_entropy_backward(
    c: Any, grad: Value, x: Value, target: Value, weight: Value | None = None, reduction: int = MEAN
) -> Value:
    p, y, dtype = _pair(c, x, target)
    slope = (p - y) / ((1.0 - p) * p).op("maximum", 1e-12)
    slope = slope if weight is None else slope * T(c, weight).to(slope.dtype)
    return (slope * _scaled(T(c, grad), p, reduction)).to(dtype).value


@aten("binary_cross_entropy_with_logits")
def binary_cross_entropy_with_logits(
    c: Any, x: Value, target: Value, weight: Any = None, pos_weight: Any = None, reduction: int = MEAN
) -> Value:
    """`(1 - y) x - (1 + (p - 1) y) logsigmoid(x)`, `p` the weight of positives."""
    a, y, dtype = _pair(c, x, target)
    log_sigmoid = a.op("minimum", 0.0) - (-a.abs()).exp().op("log1p")
    loss = (1.0 - y) * a
    if pos_weight is None:
        loss = loss - log_sigmoid
    else:
        loss = loss - ((T(c, pos_weight).to(a.dtype) - 1.0) * y + 1.0) * log_sigmoid
    loss = loss if weight is None else loss * T(c, weight).to(loss.dtype)
    return _reduced(loss, dtype, reduction)


@aten("soft_margin_loss")
def soft_margin_loss(c: Any, x: Value, target: Value, reduction: int = MEAN) -> Value:
    a, y, dtype = _pair(c, x, target)
    return _reduced((-y * a).exp().op("log1p"), dtype, reduction)


@aten("soft_margin_loss_backward")
def soft_margin_loss_backward(c: Any, grad: Value, x: Value, target: Value, reduction: int) -> Value:
    a, y, dtype = _pair(c, x, target)
    z = (-y * a).exp()
    return (-y * z / (z + 1.0) * _scaled(T(c, grad), a, reduction)).to(dtype).value


# -- classification ---------------------------------------------------------------------------------------------
def _picked(c: Any, log_p: T, target: T, weight: Value | None, ignore: Any, narrow: T | None = None) -> tuple[T, T, T]:
    """Of `[N, C, …]`: the log-probability of each target, its weight (0 where ignored), and the target to read.

    `narrow` is a tensor that `log_p` is a conversion of: the elements are read from it.
    """
    ignored = target.eq(ignore)
    safe = ignored.where(0, target)
    # `index`, not `gather`: a target out of range is an IndexError
    places = [safe if d == 1 else _position(c, log_p, d) for d in range(log_p.rank)]
    source = log_p if narrow is None else narrow
    picked = source.op("index", *places, dims=tuple(range(log_p.rank)), wrap=False).to(log_p.dtype)
    if weight is None:
        w = ignored.where(0.0, picked.like(1.0))
    else:
        flat = T(c, weight).to(log_p.dtype)
        w = ignored.where(0.0, flat.op("index", safe, dims=(0,)))
    return picked, w, safe


def _position(c: Any, x: T, dim: int) -> T:
    """The position in `dim` of `x` `[N, C, …]`, to be broadcast over `[N, …]`."""
    counts = T(c, c.op("iota", size=(x.shape[dim],), start=0, step=1, dtype="i64"))
    return counts.reshape(*(x.shape[d] if d == dim else 1 for d in range(x.rank) if d != 1))


def _logits(c: Any) -> tuple[T | None, T | None]:
    """What the input is the log-softmax of, if nothing else reads that, and a narrower tensor that it is a conversion of.

    Then only the rows' logarithms of sums are computed, and no tensor of log-probabilities is written.
    """
    made = c.node.args[0]
    if getattr(made, "target", None) is not torch.ops.aten._log_softmax.default or len(made.users) != 1:
        return None, None
    z, dim, _ = made.args
    logits = T(c, c.value(z))
    return _wide_and_narrow(c, logits, z) if logits.rank > 1 and dim % logits.rank == 1 else (None, None)


def _wide_and_narrow(c: Any, logits: T, node: Any) -> tuple[T | None, T | None]:
    """Logits as eager computes with them, and as they are read at computed places; `node` makes them."""
    if is_half(logits.dtype):
        return logits.wide(), logits
    return (logits, _before_conversion(c, node)) if logits.dtype in ("f32", "f64") else (None, None)


def _before_conversion(c: Any, node: Any) -> T | None:
    """What `node` is a conversion of to a wider type: a read at computed places needs no converted tensor."""
    if getattr(node, "target", None) is not torch.ops.aten._to_copy.default:
        return None
    narrow = T(c, c.value(node.args[0]))
    return narrow if narrow.dtype in ("f16", "bf16") else None


@aten("nll_loss_forward", "nll_loss2d_forward")
def nll_loss_forward(c: Any, x: Value, target: Value, weight: Value | None, reduction: int, ignore: Any) -> tuple:
    """`-w[t] x[t]`, reduced by the sum of the weights of what is not ignored, which is the second result."""
    return _nll(c, x, target, weight, reduction, ignore, *_logits(c))


def _nll(
    c: Any,
    x: Value,
    target: Value,
    weight: Value | None,
    reduction: int,
    ignore: Any,
    logits: T | None = None,
    narrow: T | None = None,
) -> tuple:
    """Of log-probabilities `x`, or of `logits`, of which `x` is or would be the log-softmax."""
    t, y = T(c, x).wide(), T(c, target)
    dtype = c.type(x).dtype
    if t.rank == 1:
        t, y = t.unsqueeze(0), y.reshape(1)
    picked, w, _ = _picked(c, t if logits is None else logits, y, weight, ignore, narrow)
    if logits is not None:
        top = logits.op("amax", dims=(1,), keepdim=True)
        total = (logits - top).exp().sum((1,), keepdim=True).log()
        # in eager's order: `total + top` is rounded as coarsely as `top` is
        picked = picked - top.reshape(*y.shape) - total.reshape(*y.shape)
        picked = picked.to(dtype).to(picked.dtype)  # as the log-softmax would be
    # an ignored -inf must not become NaN through 0 * inf
    loss = y.eq(ignore).where(0.0, -picked if weight is None else -(picked * w))
    if reduction == NONE:
        return loss.to(dtype).reshape(*c.type(target).shape).value, c.scalar(0.0, dtype)
    dims = tuple(range(loss.rank))
    # a count of its own, from the targets: one kernel can sum both
    total = w.sum(dims) if weight is not None else y.ne(ignore).to(loss.dtype).sum(dims)
    loss = loss.sum(dims)
    return (loss / total if reduction == MEAN else loss).to(dtype).value, total.to(dtype).value


@aten("nll_loss_backward", "nll_loss2d_backward")
def nll_loss_backward(
    c: Any, grad: Value, x: Value, target: Value, weight: Value | None, reduction: int, ignore: Any, total: Value
) -> Value:
    """`-w[t] grad` (over the total weight for a mean) at each target, 0 elsewhere."""
    t, y, g = T(c, x), T(c, target), T(c, grad)
    shape = t.shape
    if t.rank == 1:
        t, y, g = t.unsqueeze(0), y.reshape(1), g.reshape(1) if reduction == NONE else g
    wide = "f32" if t.dtype in ("f16", "bf16") else t.dtype
    g = g.to(wide)
    g = g / T(c, total).to(wide) if reduction == MEAN else g
    g = g.expand(*y.shape) if reduction != NONE else g
    ignored = y.eq(ignore)
    if weight is not None:
        g = g * T(c, weight).to(wide).op("index", ignored.where(0, y), dims=(0,))
    g = ignored.where(0.0, -g)
    classes = T(c, c.op("iota", size=(t.shape[1],), start=0, step=1, dtype=y.dtype))
    hit = classes.reshape(t.shape[1], *([1] * (t.rank - 2))).eq(y.unsqueeze(1))
    return hit.where(g.unsqueeze(1), 0.0).to(t.dtype).reshape(*shape).value


@aten("nll_loss", "nll_loss_nd", "nll_loss2d")
def nll_loss(
    c: Any, x: Value, target: Value, weight: Value | None = None, reduction: int = MEAN, ignore: Any = -100
) -> Value:
    return nll_loss_forward(c, x, target, weight, reduction, ignore)[0]


@aten("cross_entropy_loss")
def cross_entropy_loss(
    c: Any,
    x: Value,
    target: Value,
    weight: Value | None = None,
    reduction: int = MEAN,
    ignore: Any = -100,
    label_smoothing: float = 0.0,
) -> Value:
    require(label_smoothing == 0 and c.type(target).dtype == "i64", "label smoothing or probabilities as targets")
    rank = c.type(x).rank
    logits, narrow = _wide_and_narrow(c, T(c, x), c.node.args[0]) if rank > 1 else (None, None)
    if logits is not None:
        return _nll(c, x, target, weight, reduction, ignore, logits, narrow)[0]
    log_p = c.op("log_softmax", x, dim=0 if rank == 1 else 1)
    return _nll(c, log_p, target, weight, reduction, ignore)[0]
