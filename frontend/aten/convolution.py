"""ATen's convolutions: all become `conv` on `[N, C, spatial…]`; an unbatched input gets a batch of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from ...dialects.dims import Dim, floordiv, product
from .registry import Value, aten, require
from .tensor_math import T
from .windows import per_dim

SHORTEST_ROW = 4  # elements of a patch's row from which a product of its patches is faster than a convolution


@aten("convolution", "convolution_overrideable")
def convolution(
    c: Any,
    x: Value,
    w: Value,
    bias: Value | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Value:
    spatial = len(c.type(w).shape) - 2
    each = [per_dim(v, spatial) for v in (stride, padding, dilation)]
    extra = per_dim(output_padding, spatial) if transposed else ()
    require(all(isinstance(v, int) for v in (*sum(each, ()), *extra)), "symbolic strides or padding")
    t = T(c, x)
    batched = t if t.rank == spatial + 2 else t.unsqueeze(0)
    if groups == 1 and not transposed and _is_of_patches(c.type(w).shape[2:], *each) and _read_by_places(c.node):
        y = _of_patches(batched, T(c, w), bias).value
    else:
        attributes = {"stride": each[0], "padding": each[1], "dilation": each[2], "groups": groups}
        y = c.op("conv", batched.value, w, bias, **attributes, transposed=transposed, output_padding=extra)
    return y if t.rank == spatial + 2 else T(c, y).reshape(*c.type(y).shape[1:]).value


def _is_of_patches(
    kernel: Sequence[Dim], stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int]
) -> bool:
    """True if every element of the image is in one patch at most, and rows of patches are worth a load."""
    one_each = tuple(kernel) == tuple(stride) and not any(padding) and set(dilation) == {1}
    return one_each and stride[-1] >= SHORTEST_ROW


def _read_by_places(node: fx.Node) -> bool:
    """True if all that is read of a convolution is a view whose last dim is the channels."""
    made, weight = (n.meta["val"] for n in (node, node.args[1]))
    channel = made.dim() - weight.dim() + 1

    def reads(user: fx.Node) -> bool:
        view = user.meta.get("val")
        if not (getattr(user.target, "is_view", False) or user.target is torch.ops.aten._unsafe_view.default):
            return False
        if view.dim() and view.shape[-1] == made.shape[channel] and view.stride(-1) == made.stride(channel):
            return True
        return bool(user.users) and all(map(reads, user.users))

    return bool(node.users) and all(map(reads, node.users))


def _of_patches(x: T, w: T, bias: Value | None) -> T:
    """`y[n, o, p] = sum over c, k of w[o, c, k] x[n, c, p s + k] + bias[o]` where patches are the kernel's size `s`.

    A product of matrices: patches in rows, channels and places in a patch in columns.
    """
    n, channels, *sizes = x.shape
    kernel = w.shape[2:]
    count = [floordiv(size, k) for size, k in zip(sizes, kernel)]
    for d, (places, k) in enumerate(zip(count, kernel)):
        x = x.slice(2 + d, 0, places * k)
    spatial = range(len(kernel))
    x = x.reshape(n, channels, *(size for pair in zip(count, kernel) for size in pair))
    x = x.permute(0, *(2 + 2 * d for d in spatial), 1, *(3 + 2 * d for d in spatial))
    length = channels * product(kernel)
    rows = x.reshape(n * product(count), length)
    y = rows.c.op("linear", rows.value, w.reshape(w.shape[0], length).value, bias)
    y = T(rows.c, y).reshape(n, *count, w.shape[0])
    return y.permute(0, len(kernel) + 1, *(1 + d for d in spatial))


@aten("conv1d", "conv2d", "conv3d")
def conv(
    c: Any, x: Value, w: Value, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Value:
    return convolution(c, x, w, bias, stride, padding, dilation, False, (), groups)


@aten("conv1d.padding", "conv2d.padding", "conv3d.padding")
def conv_named_padding(
    c: Any,
    x: Value,
    w: Value,
    bias: Any = None,
    stride: Any = 1,
    padding: str = "valid",
    dilation: Any = 1,
    groups: int = 1,
) -> Value:
    """ "same" pads `dilation * (kernel - 1)` in all: half of it on each side, an odd rest at the end."""
    kernel = c.type(w).shape[2:]
    if padding == "valid":
        return convolution(c, x, w, bias, stride, 0, dilation, False, (), groups)
    require(all(isinstance(k, int) for k in kernel), "a kernel of symbolic size")
    total = [d * (k - 1) for d, k in zip(per_dim(dilation, len(kernel)), kernel)]
    rest = [p % 2 for p in total]
    if any(rest):
        front = c.type(x).rank - len(rest)
        x = c.op("pad", x, low=(0,) * (front + len(rest)), high=(0,) * front + tuple(rest), value=0, mode="constant")
    return convolution(c, x, w, bias, stride, [p // 2 for p in total], dilation, False, (), groups)


@aten("conv_transpose1d", "conv_transpose2d.input", "conv_transpose3d.input")
def conv_transpose(
    c: Any,
    x: Value,
    w: Value,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Value:
    return convolution(c, x, w, bias, stride, padding, dilation, True, output_padding, groups)
