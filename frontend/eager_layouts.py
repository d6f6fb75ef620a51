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


def decompositions() -> dict[Any, Callable[..., Any]]:
    """The table for AOTAutograd."""
    return {
        _aten.pow.Scalar: _pow,
        _aten.log_sigmoid_forward.default: _log_sigmoid_forward,
        **{op: _laid_out_as_a_sum(op) for op in _TWO_OPERANDS},
    }


def _pow(base: Any, exponent: Tensor) -> Any:
    """Row-major, whatever the order of the exponents."""
    return NotImplemented if exponent.is_contiguous() else _aten.pow.Scalar(base, _in_order(exponent))


def _log_sigmoid_forward(x: Tensor) -> Any:
    """Row-major on CPUs."""
    if x.device.type != "cpu" or x.is_contiguous():
        return NotImplemented
    return _aten.log_sigmoid_forward.default(_in_order(x))


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


def _alike(x: Tensor, y: Tensor) -> bool:
    """True if the sizes and strides of both are known to be the same; no guard is added to find out."""
    pairs = zip((*x.shape, *x.stride()), (*y.shape, *y.stride()))
    return x.dim() == y.dim() and all(statically_known_true(m == n) for m, n in pairs)


def _in_order(x: Tensor, order: Sequence[int] = ()) -> Tensor:
    """A copy of `x` whose dims are in memory in the given order, or in their own."""
    order = tuple(order) or tuple(range(x.dim()))
    back = sorted(range(x.dim()), key=lambda d: order[d])
    return x.permute(order).clone(memory_format=torch.contiguous_format).permute(back)
