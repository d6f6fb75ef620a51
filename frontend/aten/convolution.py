"""ATen's convolutions: all become `conv` on `[N, C, spatial…]`; an unbatched input gets a batch of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .registry import Value, aten, require
from .tensor_math import T


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
    each = [_each(v, spatial) for v in (stride, padding, dilation)]
    extra = _each(output_padding, spatial) if transposed else ()
    require(all(isinstance(v, int) for v in (*sum(each, ()), *extra)), "symbolic strides or padding")
    t = T(c, x)
    batched = t if t.rank == spatial + 2 else t.unsqueeze(0)
    y = c.op(
        "conv", batched.value, w, bias, stride=each[0], padding=each[1], dilation=each[2], groups=groups,
        transposed=transposed, output_padding=extra,
    )  # fmt: skip
    return y if t.rank == spatial + 2 else T(c, y).reshape(*c.type(y).shape[1:]).value


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
    total = [d * (k - 1) for d, k in zip(_each(dilation, len(kernel)), kernel)]
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


def _each(value: Any, count: int) -> tuple[int, ...]:
    """One number per spatial dim from a number or a list of one or `count`."""
    values = tuple(value) if isinstance(value, (list, tuple)) else (value,)
    return values * count if len(values) == 1 else values
