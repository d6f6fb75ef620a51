"""Fourier transforms as products with matrices of roots of unity, for CPUs and sizes known in advance.

    X[k] = Σ_j x[j] w_n^(jk),   w_n = exp(∓2πi / n)

A size n = a b is two stages (Cooley and Tukey 1965): with j = b j₁ + j₂ and k = k₁ + a k₂,

    X[k₁ + a k₂] = Σ_j₂ w_b^(j₂ k₂) · w_n^(j₂ k₁) · Σ_j₁ w_a^(j₁ k₁) x[b j₁ + j₂]

The matrices depend on sizes alone, so they are computed once, in float64. Of a real operand the first stage costs half;
of a result of which half is wanted, the last. For programs that run without torch: under torch its library's transforms
are 1.2 to 8 times as fast.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from ..aten.registry import require
from .builder import Builder, Pair, aten
from .rules import Rule, product

_DIRECT = 64  # sizes up to here are one product
_LARGEST_PRIME = 128  # a size with a larger prime factor is eager's, which costs n log n there too


def _r2c(b: Builder, x: fx.Node, dims: Sequence[int], normalization: int, onesided: bool) -> Pair:
    """A real operand: of the last of `dims`, half the result is the conjugate of the other half."""
    size = _size(x, dims[-1])
    scale = _scale(normalization, [_size(x, d) for d in dims])
    made = _along(b, x, dims[-1], size, size // 2 + 1 if onesided else size, -1, scale)
    return _all_along(b, made, dims[:-1], -1)


def _c2c(b: Builder, x: Pair, dims: Sequence[int], normalization: int, forward: bool) -> Pair:
    scale = _scale(normalization, [_size(x.re, d) for d in dims])
    return _all_along(b, x, dims, -1 if forward else 1, scale)


def _c2r(b: Builder, x: Pair, dims: Sequence[int], normalization: int, size: int) -> fx.Node:
    """A real result of `size` elements, of the first half of what would be transformed to it."""
    require(isinstance(size, int), "a symbolic size")
    *others, last = dims
    scale = _scale(normalization, [*(_size(x.re, d) for d in others), size])
    x = _all_along(b, x, others, 1)
    rest = (size + 1) // 2 - 1  # what the other half mirrors: all but the first, and the middle of an even size
    mirrored = [b.call(aten.flip.default, b.call(aten.slice.Tensor, p, last, 1, 1 + rest), [last]) for p in x]
    whole = Pair(
        b.call(aten.cat.default, [x.re, mirrored[0]], last),
        b.call(aten.cat.default, [x.im, b.neg(mirrored[1])], last),
    )
    return _along(b, whole, last, size, size, 1, scale).re


FOURIER: dict[Any, Rule] = {
    aten._fft_r2c.default: _r2c,
    aten._fft_c2c.default: _c2c,
    aten._fft_c2r.default: _c2r,
}


def _all_along(b: Builder, x: Pair, dims: Sequence[int], sign: int, scale: float = 1.0) -> Pair:
    """`x` transformed along all of `dims`."""
    for d in dims:
        size = _size(x.re, d)
        x, scale = _along(b, x, d, size, size, sign, scale), 1.0
    return x


def _along(b: Builder, x: Any, dim: int, size: int, count: int, sign: int, scale: float) -> Pair:
    """The first `count` elements of the transform along `dim` of a pair or a real node, times `scale`."""
    require(b.node.meta["val"].device.type == "cpu", "a GPU's own transforms are faster")
    moved = _each(x, lambda part: b.call(aten.transpose.int, part, dim, -1))
    made = _last(b, moved, size, count, sign, scale)
    return _each(made, lambda part: b.call(aten.transpose.int, part, dim, -1))


def _last(b: Builder, x: Any, size: int, count: int, sign: int, scale: float) -> Pair:
    """`_along` the last dimension."""
    outer = _first_factor(size)
    if outer == size:
        return product(b, x, _roots(b, x, size, count, size, sign, scale), _matmul(b))
    inner = size // outer
    x = _each(x, lambda part: b.call(aten.transpose.int, b.call(aten.unflatten.int, part, -1, [outer, inner]), -2, -1))
    x = product(b, x, _roots(b, x, outer, outer, outer, sign, scale), _matmul(b))
    x = product(b, x, _roots(b, x, inner, outer, size, sign, 1.0))  # [inner, outer]
    x = _each(x, lambda part: b.call(aten.transpose.int, part, -2, -1))
    rows = -(-count // outer)
    x = _last(b, x, inner, rows, sign, 1.0)
    x = _each(x, lambda part: b.call(aten.flatten.using_ints, b.call(aten.transpose.int, part, -2, -1), -2, -1))
    return x if rows * outer == count else _each(x, lambda part: b.call(aten.slice.Tensor, part, -1, 0, count))


def _first_factor(size: int) -> int:
    """The size of the first stage: `size` if one is enough, else its divisor nearest the root of it."""
    if size <= _DIRECT:
        return size
    divisors = [d for d in range(2, size) if size % d == 0 and d <= _LARGEST_PRIME]
    if not divisors:
        require(size <= _LARGEST_PRIME, f"a transform of {size} elements, which has a large prime factor")
        return size
    return min(divisors, key=lambda d: abs(d * d - size))


def _roots(b: Builder, like: Any, rows: int, columns: int, n: int, sign: int, scale: float) -> Pair:
    """The matrix `scale * w_n^(j k)`, j < rows, k < columns, in the type of `like`."""
    dtype = (like.re if isinstance(like, Pair) else like).meta["val"].dtype
    j, k = (b.call(aten.arange.default, size, device=torch.device("cpu")) for size in (rows, columns))
    turns = b.call(aten.remainder.Scalar, b.mul(b.call(aten.unsqueeze.default, j, 1), k), n)
    angle = b.mul(b.cast(turns, torch.float64), sign * 2 * math.pi / n)
    parts = (b.call(function, angle) for function in (aten.cos.default, aten.sin.default))
    return Pair(*(b.cast(part if scale == 1 else b.mul(part, scale), dtype) for part in parts))


def _matmul(b: Builder) -> Any:
    return lambda x, y: b.call(aten.matmul.default, x, y)


def _each(x: Any, function: Any) -> Any:
    return Pair(*map(function, x)) if isinstance(x, Pair) else function(x)


def _size(x: fx.Node, dim: int) -> int:
    size = x.meta["val"].shape[dim]
    require(isinstance(size, int), "a transform of a symbolic size")
    return size


def _scale(normalization: int, sizes: Sequence[int]) -> float:
    """ATen's factor: 0 none, 1 by the root of the number of elements, 2 by that number."""
    return math.prod(sizes) ** (0.0, -0.5, -1.0)[normalization]
