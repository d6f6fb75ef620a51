"""Convolution of images whose channels lie side by side: what a GPU's tensor cores and copy engine take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from ..lazy import np
from ..op import Attr, Ints, Op, Operand, OptionalOperand, Result, check, sample
from ..record import TensorType
from .convolution import Conv, _output_sizes
from .depthwise_conv import UNIT, suits_depthwise
from .pad import Pad

# the most that the copy engine adds to a place of the image, and the furthest padding, by the number of spatial dims
REACH = {1: 1 << 15, 2: 1 << 7, 3: 1 << 4}
LONGEST_STEP = 8
MOST_TAPS = 256  # a gradient of weights has the image's size as kernel: few positions and a very long K
LONGEST_PATCH = 64  # elements that tensor cores take at once: a patch of so few is written out


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


def suits_channels_last(x: TensorType, w: TensorType, attributes: Mapping[str, Any]) -> bool:
    """True for a `conv` of `x` and `w` that is fast with channels last: by tensor cores and a copy engine, or depthwise.

    Few channels leave tensor cores idle, but such layers are bound by memory, and images would have to be turned for others.
    A transposed one becomes convolutions of parts of its kernel, which suit where all of it does.
    """
    if suits_depthwise(x, w, attributes):
        return True
    transposed = attributes["transposed"]
    outputs, channels, *kernel = w.shape if not transposed else (w.shape[1], w.shape[0], *w.shape[2:])
    if x.dtype not in ("bf16", "f16") or attributes["groups"] != 1:
        return False
    if not isinstance(outputs, int) or w.rank - 2 not in REACH:
        return False
    if not transposed and (has_short_patches(w) or folding(x, w, attributes) is not None):
        return True
    sizes = [k for k in (channels, *kernel) if isinstance(k, int)]
    if len(sizes) <= len(kernel) or sizes[0] % UNIT or prod(sizes[1:]) > MOST_TAPS:
        return False
    stride, padding, dilation = (attributes[name] for name in ("stride", "padding", "dilation"))
    if transposed:
        stride, padding = (1,) * len(kernel), tuple((k - 1) * d for k, d in zip(sizes[1:], dilation))
    return windows_fit(sizes[1:], stride, padding, dilation)


def is_one_convolution(w: TensorType, attributes: Mapping[str, Any]) -> bool:
    """False for a transposed convolution that becomes several plain ones: its phases have different numbers of taps."""
    if not attributes["transposed"]:
        return True
    each = zip(w.shape[2:], attributes["stride"], attributes["dilation"])
    return all(s == 1 or d == 1 and isinstance(k, int) and k % s == 0 for k, s, d in each)


def has_short_patches(w: TensorType) -> bool:
    """True for fewer channels than the copy engine takes, whose patches are no longer than a block of K: written out."""
    sizes = [k for k in w.shape[1:] if isinstance(k, int)]
    return len(sizes) == w.rank - 1 and sizes[0] < UNIT and 0 < prod(sizes) <= LONGEST_PATCH


@dataclass(frozen=True)
class Folding:
    """How a convolution of few channels becomes one of stride 1 on `channels * step²`: squares of positions are channels.

    `taps` of each spatial dim are left, of `step` places each; `rows` squares; `high` zeros are added behind the image.
    Where `step` does not divide the kernel, the last taps have weights of zero, which make NaN of an infinite pixel that they
    meet, beside where eager has one.
    """

    step: int
    channels: int
    taps: tuple[int, ...]
    rows: tuple[int, ...]
    high: tuple[int, ...]


def folding(x: TensorType, w: TensorType, attributes: Mapping[str, Any]) -> Folding | None:
    """The folding of a `conv` on images of static size with fewer channels than the copy engine takes, or None."""
    channels, *kernel = (k for k in w.shape[1:] if isinstance(k, int))
    sizes, stride, padding = [n for n in x.shape[2:] if isinstance(n, int)], attributes["stride"], attributes["padding"]
    if channels >= UNIT or len(kernel) != 2 or len(sizes) != 2 or {*attributes["dilation"]} != {1}:
        return None
    step = stride[0]
    if len({*stride}) != 1 or step > LONGEST_STEP:
        return None
    channels = next(c for c in range(channels, 2 * UNIT) if c * step * step % UNIT == 0)
    taps = tuple(-(-k // step) for k in kernel)
    rows = tuple((n + 2 * p - k) // step + t for n, p, k, t in zip(sizes, padding, kernel, taps))
    high = tuple(r * step - n - p for r, n, p in zip(rows, sizes, padding))
    return Folding(step, channels, taps, rows, high) if min(high) >= 0 else None


def windows_fit(kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int]) -> bool:
    """True if descriptors of the copy engine hold the windows of a convolution."""
    reach, spans = REACH[len(kernel)], [(k - 1) * d for k, d in zip(kernel, dilation)]
    near = all(p <= reach and s < 2 * reach and s - p <= reach for p, s in zip(padding, spans))
    return near and max(stride) <= LONGEST_STEP
