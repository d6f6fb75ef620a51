"""Ops whose results torch lays out otherwise where it traces them than where it runs them (torch 2.13).

What they read is copied into the order that eager gives the result; then both agree. The copies compute nothing, and no
buffer is made for them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import statically_known_true

from .sizes import hint

_aten = torch.ops.aten
# Functions of two tensors whose traced form is torch's Python reference: it orders the dims of a result by other rules
# than eager where the operands disagree.
_TWO_OPERANDS = (
    _aten.copysign.Tensor,
    _aten.div.Tensor_mode,
    _aten.floor_divide.default,
    _aten.heaviside.default,
    _aten.logaddexp.default,
    _aten.logical_and.default,
    _aten.logical_or.default,
    _aten.logical_xor.default,
    _aten.special_xlog1py.default,
    _aten.xlogy.Tensor,
)
_CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}  # by the number of dims
_BATCH_NORMS = (
    _aten._batch_norm_with_update_functional.default,
    _aten._native_batch_norm_legit.no_stats,
    _aten._native_batch_norm_legit_functional.default,
    _aten._native_batch_norm_legit_no_training.default,
)
# Functions whose results eager lays out with channels last where the first operand is; traced, they are row-major.
_KEEP_CHANNELS_LAST = (
    _aten.channel_shuffle.default,
    _aten.max_unpool2d.default,
    _aten.reflection_pad2d.default,
    _aten.reflection_pad3d.default,
    _aten.replication_pad2d.default,
    _aten.replication_pad3d.default,
    _aten.roll.default,
)


def decompositions() -> dict[Any, Callable[..., Any]]:
    """The table for AOTAutograd."""
    return {
        _aten.pow.Scalar: _pow,
        _aten.log_sigmoid_forward.default: _log_sigmoid_forward,
        _aten.nll_loss2d_forward.default: _nll_loss2d_forward,
        **{op: _laid_out_as_a_sum(op) for op in _TWO_OPERANDS},
        **{op: _row_major_or_channels_last(op) for op in _BATCH_NORMS},
        **{op: _channels_last_kept(op) for op in _KEEP_CHANNELS_LAST},
    }


def _pow(base: Any, exponent: Tensor) -> Any:
    """Row-major, whatever the order of the exponents."""
    return NotImplemented if exponent.is_contiguous() else _aten.pow.Scalar(base, _in_order(exponent))


def _log_sigmoid_forward(x: Tensor) -> Any:
    """Row-major on CPUs."""
    if x.device.type != "cpu" or x.is_contiguous():
        return NotImplemented
    return _aten.log_sigmoid_forward.default(_in_order(x))


def _nll_loss2d_forward(x: Tensor, target: Tensor, *options: Any) -> Any:
    """Row-major, whatever the order of the targets. CPUs."""
    if x.device.type != "cpu" or target.is_contiguous():
        return NotImplemented
    return _aten.nll_loss2d_forward.default(x, _in_order(target), *options)


def _laid_out_as_a_sum(op: Any) -> Callable[..., Any]:
    """`op(x, y)` in the order of memory of `x + y`, which torch traces as it runs."""

    def decomposed(x: Any, y: Any, **options: Any) -> Any:
        if not (isinstance(x, Tensor) and isinstance(y, Tensor)) or _alike(x, y):
            return NotImplemented
        if x.dtype != y.dtype and not (x.dim() and y.dim()):
            return NotImplemented  # with dims it would have another part in the choice of the result's type
        total = _aten.add.Tensor(x, y)
        order = sorted(range(total.dim()), key=lambda d: -(hint(total.stride(d)) or 0))
        return op(*(_in_order(t.expand(total.shape), order) for t in (x, y)), **options)

    return decomposed


def _row_major_or_channels_last(op: Any) -> Callable[..., Any]:
    """`op(x, …)` in row-major order, or with channels last where `x` has them so; traced, it has the strides of `x`."""

    def decomposed(x: Tensor, *args: Any) -> Any:
        order = (0, *range(2, x.dim()), 1) if _channels_last(x) else tuple(range(x.dim()))
        if x.device.type != "cpu" or _has_order(x, order):
            return NotImplemented
        return op(_in_order(x, order), *args)

    return decomposed


def _channels_last_kept(op: Any) -> Callable[..., Any]:
    """`op(x, …)` with channels last where `x` has them so. CPUs."""

    def decomposed(x: Tensor, *args: Any) -> Any:
        if x.device.type != "cpu" or not _channels_last(x) or (op is _aten.roll.default and not _rolls(x, *args)):
            return NotImplemented
        y = op(_in_order(x), *args)
        return y.clone(memory_format=_CHANNELS_LAST[y.dim()])

    return decomposed


def _rolls(x: Tensor, shifts: Sequence[Any], dims: Sequence[int] = ()) -> bool:
    """True if `roll` moves something along each of `dims`; otherwise its result is row-major."""
    return len(dims) > 0 and all((hint(s) or 0) % max(hint(x.shape[d]) or 1, 1) for s, d in zip(shifts, dims))


def _channels_last(x: Tensor) -> bool:
    """What torch's `suggest_memory_format` says: strides grow from channels to rows to images, gaps allowed."""
    if x.dim() not in _CHANNELS_LAST or x.is_contiguous():
        return False
    if x.is_contiguous(memory_format=_CHANNELS_LAST[x.dim()]):
        return True
    least = 0
    for d in (1, *range(x.dim() - 1, 1, -1), 0):
        stride, size = hint(x.stride(d)) or 0, hint(x.shape[d]) or 0
        if not size or stride < least or (d == 0 and least == hint(x.stride(1))):
            return False
        least = stride * size
    return True


def _has_order(x: Tensor, order: Sequence[int]) -> bool:
    """True if `x` is known to have the strides of a new tensor whose dims are in memory in that order."""
    stride = 1
    for d in reversed(order):
        if not statically_known_true(x.stride(d) == stride):
            return False
        stride = stride * max(x.shape[d], 1)
    return True


def _alike(x: Tensor, y: Tensor) -> bool:
    """True if the sizes and strides of both are known to be the same; no guard is added to find out."""
    pairs = zip((*x.shape, *x.stride()), (*y.shape, *y.stride()))
    return x.dim() == y.dim() and all(statically_known_true(m == n) for m, n in pairs)


def _in_order(x: Tensor, order: Sequence[int] = ()) -> Tensor:
    """A copy of `x` whose dims are in memory in the given order, or in their own."""
    order = tuple(order) or tuple(range(x.dim()))
    back = sorted(range(x.dim()), key=lambda d: order[d])
    return x.permute(order).clone(memory_format=torch.contiguous_format).permute(back)
