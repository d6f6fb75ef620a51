"""Gradients of convolution, each a convolution again.

With respect to `x` it is the transposed form with the same weights. With respect to the weights it is a convolution in
which batch and channels change places: `dw[o, c, k] = sum_{n, p} g[n, o, p] x[n, c, p·stride - padding + k·dilation]`
slides `g` over `x` with `stride` as its dilation and `dilation` as its stride.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .registry import Value, aten, require
from .tensor_math import T
from .windows import per_dim


@aten("convolution_backward")
def convolution_backward(
    c: Any,
    grad: Value,
    x: Value,
    w: Value,
    bias_sizes: Any,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    mask: Sequence[bool],
) -> tuple:
    g, t, u = T(c, grad), T(c, x), T(c, w)
    spatial = u.rank - 2
    require(t.rank == u.rank, "an unbatched convolution")
    stride, padding, dilation = (per_dim(v, spatial) for v in (stride, padding, dilation))
    dx = dw = db = None
    if mask[0]:
        dx = _input_gradient(c, g, t, u, stride, padding, dilation, transposed, groups)
    if mask[1]:
        image, taps = (g, t) if transposed else (t, g)
        dw = _weight_gradient(image, taps, u, stride, padding, dilation, groups)
    if mask[2]:
        db = g.sum((0, *range(2, g.rank))).value
    return dx, dw, db


def _input_gradient(
    c: Any, g: T, t: T, u: T, stride: Any, padding: Any, dilation: Any, transposed: bool, groups: int
) -> Value:
    if transposed:
        return c.op("conv", g.value, u.value, None, stride=stride, padding=padding, dilation=dilation, groups=groups)
    # what the division by the stride dropped comes back as output padding
    extra = []
    for i, size in enumerate(t.shape[2:]):
        reach = (g.shape[2 + i] - 1) * stride[i] - 2 * padding[i] + dilation[i] * (u.shape[2 + i] - 1) + 1
        rest = size - reach
        require(isinstance(rest, int), "a stride over a symbolic size")
        extra.append(rest)
    return c.op(
        "conv",
        g.value,
        u.value,
        None,
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
        transposed=True,
        output_padding=tuple(extra),
    )


def _weight_gradient(image: T, taps: T, u: T, stride: Any, padding: Any, dilation: Any, groups: int) -> Value:
    """`[rows of taps, channels of image / groups, kernel…]`, the layout of the weights in both forms."""
    n, channels, *sizes = image.shape
    swapped = image.reshape(n, groups, channels // groups, *sizes)
    swapped = swapped.permute(2, 1, 0, *range(3, swapped.rank)).reshape(channels // groups, groups * n, *sizes)
    kernel = taps.permute(1, 0, *range(2, taps.rank))
    made = T(
        image.c,
        image.c.op(
            "conv", swapped.value, kernel.value, None, stride=dilation, padding=padding, dilation=stride, groups=groups
        ),
    )
    for i, size in enumerate(u.shape[2:]):
        if made.shape[2 + i] != size:
            made = made.slice(2 + i, 0, size)
    return made.permute(1, 0, *range(2, made.rank)).value
