"""Convolution of images whose channels lie side by side: what a GPU's tensor cores and copy engine take."""

from __future__ import annotations

from ..lazy import np
from ..op import Attr, Ints, Op, Operand, OptionalOperand, Result, check, sample
from ..record import TensorType
from .convolution import Conv, _output_sizes
from .pad import Pad


class ChannelsLastConv(Op, name="channels_last_conv", category="conv"):
    """`y[n, p, o] = bias[o] + sum_{k, c} x[n, p·stride - padding + k·dilation, c] * w[o, k, c]` on `[N, spatial…, C]`.

    `conv` of one group with the dims in another order: `w` is `[O, kernel…, C]`, the result `[N, spatial…, O]`. Made by
    `lamina-channels-last`.
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
        sample((2, 7, 6, 3), (4, 3, 2, 3), (4,), stride=(2, 1), padding=(1, 0), dilation=(1, 2)),
        sample((2, 5, 4, 8), (6, 1, 1, 8), None, stride=(2, 2), padding=(0, 0), dilation=(1, 1)),
        sample((2, 9, 3), (4, 4, 3), (4,), stride=(3,), padding=(2,), dilation=(1,)),
        sample((1, 4, 3, 4, 2), (3, 2, 2, 2, 2), None, stride=(1, 1, 1), padding=(0, 1, 0), dilation=(1, 1, 1)),
        sample(("bf16", (1, 5, 5, 8)), ("bf16", (3, 3, 3, 8)), ("bf16", (3,)), stride=(1, 1), padding=(1, 1), dilation=(1, 1)),
    )  # fmt: skip

    @staticmethod
    def infer(x, w, bias, stride, padding, dilation):
        first = lambda t: TensorType(t.dtype, (t.shape[0], t.shape[-1], *t.shape[1:-1]))
        check(x.rank >= 3 and w.rank == x.rank, f"takes x [N, …, C] and w of equal rank ≥ 3, got {x.rank} and {w.rank}")
        y = Conv.infer(first(x), first(w), bias, stride, padding, dilation, 1, False, ())
        return TensorType(y.dtype, (y.shape[0], *y.shape[2:], y.shape[1]))

    @staticmethod
    def torch(x, w, bias, stride, padding, dilation):
        y = Conv.torch(x.movedim(-1, 1), w.movedim(-1, 1), bias, stride, padding, dilation)
        return y.movedim(1, -1).contiguous()

    @staticmethod
    def reference(x, w, bias, stride, padding, dilation):
        first = lambda t: np.moveaxis(t, -1, 1)
        y = Conv.reference(first(x), first(w), bias, stride, padding, dilation, 1, False, ())
        return np.ascontiguousarray(np.moveaxis(y, 1, -1))

    @staticmethod
    def lower(b, x, w, bias, stride, padding, dilation):
        n, *spatial, _ = x.shape
        outputs, *kernel, channels = w.shape
        sizes = _output_sizes(spatial, kernel, stride, padding, dilation, False, ())
        rank, acc = len(sizes), b.accumulator(x.dtype)
        around = (0, *padding, 0)
        grid = Pad.lower(b, x, low=around, high=around, value=0, mode="constant") if any(padding) else x
        # loops: n, positions, output channel, taps, input channel
        positions, o, offsets, c = range(1, 1 + rank), 1 + rank, range(2 + rank, 2 + 2 * rank), 2 + 2 * rank
        where = [(((p, stride[i]), (k, dilation[i])), 0) for i, (p, k) in enumerate(zip(positions, offsets))]
        y = b.generic(
            (n, *sizes, outputs, *kernel, channels),
            [(grid, (0, *where, c)), (w, (o, *offsets, c))],
            [acc],
            lambda s, v, u, total: s.add(total, s.mul(s.cast(v, acc), s.cast(u, acc))),
            reduced=(*offsets, c),
            inits=[b.fill((n, *sizes, outputs), 0, acc)],
        )
        return b.cast(y if bias is None else b.add(y, b.cast(bias, acc)), x.dtype)
