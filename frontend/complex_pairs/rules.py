"""What ATen's ops on complex tensors are on pairs of parts.

`RULES[op](b, *args, **kwargs)`: `b` is the Builder, complex arguments are `Pair`s. A rule returns the Pair of a complex
result (of a list of tensors: the pair of two nodes that are lists), or the node of a real one. Formulas are those that
eager's vectorised kernels use: products without a look at infinities, quotients scaled by the divisor's larger part.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from ..aten.registry import require
from .builder import Builder, Pair, aten, real_dtype

Rule = Callable[..., Any]
RULES: dict[Any, Rule] = {}


def rule(*ops: Any) -> Callable[[Rule], Rule]:
    """Register a function for some overloads."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(ops, function))
        return function

    return register


def as_pair(b: Builder, x: Any, dtype: torch.dtype) -> Pair:
    """A complex or real operand as parts of type `dtype`; those of a number are floats."""
    if isinstance(x, Pair):
        return Pair(b.cast(x.re, dtype), b.cast(x.im, dtype))
    real = b.cast(x, dtype)
    return Pair(real, b.zeros_like(real) if isinstance(real, fx.Node) else 0.0)


def operand(b: Builder, x: Any) -> Any:
    """An operand in the result's type; a real one stays one."""
    return as_pair(b, x, b.dtype) if isinstance(x, Pair) else b.cast(x, b.dtype)


# -- ops that do the same to both parts -------------------------------------------------------------------------
_EACH = """view _unsafe_view reshape permute transpose.int t unsqueeze squeeze squeeze.dim squeeze.dims expand slice.Tensor
select.int alias detach clone unfold split.Tensor split_with_sizes unbind.int diagonal as_strided_scatter flip roll repeat
constant_pad_nd index.Tensor index_select gather slice_backward select_backward unfold_backward diagonal_backward
lift_fresh_copy sum sum.dim_IntList mean mean.dim cumsum neg new_zeros new_empty zeros_like empty_like tril triu"""


def _overload(name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(aten, packet), overload or "default")


def _each(op: Any) -> Rule:
    def convert(b: Builder, x: Pair, *args: Any, **kwargs: Any) -> Pair:
        if kwargs.get("dtype") is not None:
            kwargs = {**kwargs, "dtype": real_dtype(kwargs["dtype"])}
        return Pair(b.call(op, x.re, *args, **kwargs), b.call(op, x.im, *args, **kwargs))

    return convert


for _name in _EACH.split():
    RULES[_overload(_name)] = _each(_overload(_name))


@rule(aten.cat.default, aten.stack.default)
def _join(b: Builder, tensors: list[Any], dim: int = 0) -> Pair:
    pairs = [as_pair(b, t, b.dtype) for t in tensors]
    return Pair(*(b.call(b.node.target, list(parts), dim) for parts in zip(*pairs)))


@rule(aten.copy.default, aten.slice_scatter.default, aten.select_scatter.default)
def _insert(b: Builder, x: Any, source: Any, *args: Any, **kwargs: Any) -> Pair:
    """`source` in the place of `x` or of a part of it."""
    pairs = as_pair(b, x, b.dtype), as_pair(b, source, b.dtype)
    return Pair(*(b.call(b.node.target, into, part, *args, **kwargs) for into, part in zip(*pairs)))


@rule(aten.where.self)
def _where(b: Builder, condition: fx.Node, x: Any, y: Any) -> Pair:
    pairs = as_pair(b, x, b.dtype), as_pair(b, y, b.dtype)
    return Pair(*(b.call(aten.where.self, condition, one, other) for one, other in zip(*pairs)))


# -- made of nothing --------------------------------------------------------------------------------------------
@rule(aten.ones_like.default)
def _ones_like(b: Builder, x: Pair, **_: Any) -> Pair:
    return Pair(b.call(aten.ones_like.default, x.re), b.zeros_like(x.im))


@rule(aten.zeros.default, aten.empty.memory_format)
def _zeros(b: Builder, size: Any, **kwargs: Any) -> Pair:
    zeros = b.call(aten.zeros.default, size, dtype=b.dtype, device=kwargs.get("device"))
    return Pair(zeros, zeros)


@rule(aten.full.default)
def _full(b: Builder, size: Any, value: Any, **kwargs: Any) -> Pair:
    parts = value if isinstance(value, Pair) else (value, 0)
    options = {"dtype": b.dtype, "device": kwargs.get("device")}
    return Pair(*(b.call(aten.full.default, size, part, **options) for part in parts))


# -- made of real tensors, and real again -----------------------------------------------------------------------
@rule(aten.view_as_complex.default)
def _view_as_complex(b: Builder, x: fx.Node) -> Pair:
    return Pair(b.part(x, 0), b.part(x, 1))


@rule(aten.complex.default)
def _complex(b: Builder, re: fx.Node, im: fx.Node) -> Pair:
    return Pair(re, im)


@rule(aten.polar.default)
def _turned(b: Builder, length: Any, angle: fx.Node) -> Pair:
    """`length * exp(i angle)`."""
    return Pair(*(b.mul(length, b.call(function, angle)) for function in (aten.cos.default, aten.sin.default)))


@rule(aten._to_copy.default)
def _to_copy(b: Builder, x: Any, **_: Any) -> Pair:
    require(b.node.meta["val"].is_complex(), "a cast that loses the imaginary part")
    return as_pair(b, x, b.dtype)


@rule(aten.abs.default)
def _abs(b: Builder, x: Pair) -> fx.Node:
    return b.call(aten.hypot.default, x.re, x.im)


@rule(aten.angle.default)
def _angle(b: Builder, x: Pair) -> fx.Node:
    return b.call(aten.atan2.default, x.im, x.re)


# -- arithmetic -------------------------------------------------------------------------------------------------
@rule(aten._conj.default, aten._conj_physical.default)
def _conj(b: Builder, x: Pair) -> Pair:
    return Pair(x.re, b.neg(x.im))


def _linear(b: Builder, x: Any, y: Any, alpha: Any, combine: Callable[..., Any]) -> Pair:
    x, y = operand(b, x), operand(b, y)
    if alpha != 1:
        y = product(b, y, operand(b, alpha))
    x, y = (v if isinstance(v, Pair) else as_pair(b, v, b.dtype) for v in (x, y))
    return Pair(combine(x.re, y.re), combine(x.im, y.im))


@rule(aten.add.Tensor, aten.add.Scalar)
def _add(b: Builder, x: Any, y: Any, alpha: Any = 1) -> Pair:
    return _linear(b, x, y, alpha, b.add)


@rule(aten.sub.Tensor, aten.sub.Scalar)
def _sub(b: Builder, x: Any, y: Any, alpha: Any = 1) -> Pair:
    return _linear(b, x, y, alpha, b.sub)


@rule(aten.rsub.Tensor, aten.rsub.Scalar)
def _rsub(b: Builder, x: Any, y: Any, alpha: Any = 1) -> Pair:
    return _linear(b, y, x, alpha, b.sub)


@rule(aten.mul.Tensor, aten.mul.Scalar)
def _mul(b: Builder, x: Any, y: Any) -> Pair:
    return product(b, operand(b, x), operand(b, y))


def product(b: Builder, x: Any, y: Any, mul: Callable[..., Any] | None = None) -> Any:
    """`x y`, of pairs or what is real; `mul` multiplies two real ones."""
    mul = mul or b.mul
    if isinstance(x, Pair) and isinstance(y, Pair):
        return Pair(b.sub(mul(x.re, y.re), mul(x.im, y.im)), b.add(mul(x.re, y.im), mul(x.im, y.re)))
    if isinstance(x, Pair):
        return Pair(mul(x.re, y), mul(x.im, y))
    return Pair(mul(x, y.re), mul(x, y.im)) if isinstance(y, Pair) else mul(x, y)


@rule(aten.mm.default, aten.bmm.default)
def _matmul(b: Builder, x: Pair, y: Pair) -> Pair:
    return product(b, x, y, lambda left, right: b.call(b.node.target, left, right))


@rule(aten.mv.default, aten.linear.default)
def _linear_layer(b: Builder, x: Pair, y: Pair, bias: Pair | None = None) -> Pair:
    made = _matmul(b, x, y)
    return made if bias is None else _linear(b, made, bias, 1, b.add)


@rule(aten.addmm.default)
def _addmm(b: Builder, addend: Pair, x: Pair, y: Pair, beta: Any = 1, alpha: Any = 1) -> Pair:
    require(beta == 1 and alpha == 1, "factors")
    made = product(b, x, y, lambda left, right: b.call(aten.mm.default, left, right))
    return _linear(b, made, addend, 1, b.add)


@rule(aten.div.Tensor, aten.div.Scalar)
def _div(b: Builder, x: Any, y: Any) -> Pair:
    x, y = operand(b, x), operand(b, y)
    if isinstance(y, Pair) and not isinstance(y.re, fx.Node):
        inverse = 1 / complex(y.re, y.im)
        return product(b, x, Pair(inverse.real, inverse.imag))
    return product(b, x, _reciprocal(b, y)) if isinstance(y, Pair) else Pair(b.div(x.re, y), b.div(x.im, y))


@rule(aten.reciprocal.default)
def _reciprocal(b: Builder, y: Pair) -> Pair:
    """`conj(y) / |y|²`, of `y` scaled so that its larger part is 1: no square is too large or small."""
    scale = b.call(aten.maximum.default, *(b.call(aten.abs.default, part) for part in y))
    re, im = b.div(y.re, scale), b.div(y.im, scale)
    square = b.mul(b.add(b.mul(re, re), b.mul(im, im)), scale)
    return Pair(b.div(re, square), b.neg(b.div(im, square)))


@rule(aten.pow.Tensor_Scalar)
def _pow(b: Builder, x: Pair, exponent: Any) -> Pair:
    require(exponent == 2, "a power that is no square")
    return product(b, x, x)


@rule(aten.exp.default)
def _exp(b: Builder, x: Pair) -> Pair:
    return _turned(b, b.call(aten.exp.default, x.re), x.im)


@rule(aten.sgn.default)
def _sgn(b: Builder, x: Pair) -> Pair:
    """`x / |x|`; 0 at 0."""
    length = b.call(aten.hypot.default, x.re, x.im)
    some = b.call(aten.where.ScalarOther, b.call(aten.ne.Scalar, length, 0), length, 1)
    return Pair(b.div(x.re, some), b.div(x.im, some))
