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
    image, padding = _met(image, taps, u, stride, padding, dilation)
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


def _met(image: T, taps: T, u: T, stride: Any, padding: Any, dilation: Any) -> tuple[T, tuple[int, ...]]:
    """What `taps` meet of the image, and its padding: where a stride does not end at the border there would be more positions.

    With stride 2 a kernel of 3 would have 16 positions for 9, and one of 1 four. Where zeros come before the image but not
    behind it they are copied with it.
    """
    behind = []  # zeros, or what is left out
    for i, size in enumerate(image.shape[2:]):
        last = (u.shape[2 + i] - 1) * dilation[i] + (taps.shape[2 + i] - 1) * stride[i] - padding[i]
        behind.append(last + 1 - size)
    if not all(isinstance(b, int) for b in behind) or all(b >= p for b, p in zip(behind, padding)):
        return image, padding
    for i, b in enumerate(behind):
        if b < 0:
            image = image.slice(2 + i, 0, image.shape[2 + i] + b)
    high = [max(b, 0) for b in behind]
    if tuple(high) == tuple(padding):
        return image, padding
    padded = image.op("pad", low=(0, 0, *padding), high=(0, 0, *high), value=0.0, mode="constant")
    return padded, (0,) * len(padding)
