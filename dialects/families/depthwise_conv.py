"""Convolution of each channel by itself, with channels last: neighbours in memory are computed alike."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from math import prod
from typing import Any

from ..lazy import np
from ..op import Attr, Ints, Op, Operand, OptionalOperand, Result, check, sample
from ..record import TensorType
from .convolution import Conv, _output_sizes

MOST_TAPS = 64  # all are unrolled
UNIT = 8  # channels, which are loaded at once


class DepthwiseConv(Op, name="depthwise_conv", category="conv"):
    """`y[n, p, c] = bias[c] + sum_k x[n, p·stride - padding + k·dilation, c] * w[k, c]` on `[N, spatial…, C]`.

    `conv` of as many groups as channels, where `w` is `[kernel…, C]`. Made by `lamina-channels-last`.
    """

    x: Operand
    w: Operand
    bias: OptionalOperand
    stride: Attr[Ints]
    padding: Attr[Ints]
    dilation: Attr[Ints]
    y: Result

    numerics = "order"
    samples = (
        sample((2, 7, 6, 4), (3, 2, 4), (4,), stride=(2, 1), padding=(1, 0), dilation=(1, 2)),
        sample((2, 9, 3), (4, 3), None, stride=(3,), padding=(2,), dilation=(1,)),
        sample(("bf16", (1, 5, 5, 8)), ("bf16", (3, 3, 8)), ("bf16", (8,)), stride=(1, 1), padding=(1, 1), dilation=(1, 1)),
    )  # fmt: skip

    @staticmethod
    def infer(x, w, bias, stride, padding, dilation):
        check(x.rank >= 3 and w.rank == x.rank - 1, f"takes x [N, …, C] and w [kernel…, C], got {x.rank} and {w.rank}")
        first = TensorType(x.dtype, (x.shape[0], x.shape[-1], *x.shape[1:-1]))
        taps = TensorType(w.dtype, (w.shape[-1], 1, *w.shape[:-1]))
        check(isinstance(x.shape[-1], int), "takes a static number of channels")
        y = Conv.infer(first, taps, bias, stride, padding, dilation, x.shape[-1], False, ())
        return TensorType(y.dtype, (y.shape[0], *y.shape[2:], y.shape[1]))

    @staticmethod
    def torch(x, w, bias, stride, padding, dilation):
        taps = w.movedim(-1, 0).unsqueeze(1)
        y = Conv.torch(x.movedim(-1, 1), taps, bias, stride, padding, dilation, x.shape[-1])
        return y.movedim(1, -1).contiguous()

    @staticmethod
    def reference(x, w, bias, stride, padding, dilation):
        first, taps = np.moveaxis(x, -1, 1), np.moveaxis(w, -1, 0)[:, None]
        y = Conv.reference(first, taps, bias, stride, padding, dilation, x.shape[-1], False, ())
        return np.ascontiguousarray(np.moveaxis(y, 1, -1))

    @staticmethod
    def lower(b, x, w, bias, stride, padding, dilation):
        n, *spatial, channels = x.shape
        kernel = w.shape[:-1]
        sizes, acc = _output_sizes(spatial, kernel, stride, padding, dilation, False, ()), b.accumulator(x.dtype)
        rank = len(sizes)

        def window(s):
            image, *p, c = (s.index(i) for i in range(rank + 2))
            total = s.const(0, acc) if bias is None else s.cast(s.read(bias, [c]), acc)
            for k in product(*map(range, kernel)):
                places = [
                    s.add(s.mul(p[i], stride[i]), s.const(k[i] * dilation[i] - padding[i], "index"))
                    for i in range(rank)
                ]
                inside = None
                for i, at in enumerate(places):
                    if padding[i]:
                        valid = s.bitwise_and(s.ge(at, 0), s.lt(at, s.size(spatial[i])))
                        inside = valid if inside is None else s.bitwise_and(inside, valid)
                        places[i] = s.select(valid, at, 0)
                value = s.read(x, [image, *places, c])
                value = value if inside is None else s.select(inside, value, 0)
                weight = s.read(w, [*(s.const(i, "index") for i in k), c])
                total = s.multiply_add(s.cast(value, acc), s.cast(weight, acc), total)
            return s.cast(total, x.dtype)

        return b.generic((n, *sizes, channels), [], [x.dtype], window)


def suits_depthwise(x: TensorType, w: TensorType, attributes: Mapping[str, Any]) -> bool:
    """True for a `conv` of 16-bit floats, each of whose channels is a group."""
    outputs, each, *kernel = w.shape
    groups = attributes["groups"]
    if x.dtype not in ("bf16", "f16") or attributes["transposed"] or groups == 1 or groups % UNIT:
        return False
    sizes = [k for k in kernel if isinstance(k, int)]
    return outputs == groups and each == 1 and len(sizes) == len(kernel) and prod(sizes) <= MOST_TAPS
