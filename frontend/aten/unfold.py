"""Windows of images as columns (`im2col`), and added up where they came from: the gradients of `unfold` and `im2col`, and `fold`.

    y[w step + s] = Σ x[w, s]      for windows w, places s < size

With r = ⌈size / step⌉, a window is r pieces of `step` places, and piece i of all windows, side by side, is one row, which
starts at i step: y is the sum of r rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...dialects.dims import Dim
from ...dialects.op import normalize_dim
from ...dialects.strides import row_major
from .promotion import number
from .registry import Unsupported, Value, aten, require
from .tensor_math import T

_MOST_PIECES = 64


@aten("im2col")
def im2col(
    c: Any,
    x: Value,
    kernel: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Value:
    """Every window of an image as a column: [B, C * kh * kw, windows]."""
    t = T(c, x)
    if any(padding):
        pads = (0,) * (t.rank - 2) + tuple(padding)
        t = t.op("pad", low=pads, high=pads, value=number(0, t.dtype), mode="constant")
    *lead, high, wide = t.shape
    require(isinstance(high, int) and isinstance(wide, int), "windows of a symbolic size")
    counts = [(n - d * (k - 1) - 1) // s + 1 for n, k, d, s in zip((high, wide), kernel, dilation, stride)]
    strides = row_major(t.shape)
    made = t.reshape(t.numel(*range(t.rank))).op(
        "as_strided",
        shape=(*lead, *kernel, *counts),
        strides=(
            *strides[:-2],
            *(s * d for s, d in zip(strides[-2:], dilation)),
            *(s * n for s, n in zip(strides[-2:], stride)),
        ),
        offset=(0,),
    )
    return made.reshape(*c.out_type.shape).value


@aten("unfold_backward")
def unfold_backward(c: Any, grad: Value, sizes: Sequence[Dim], dim: int, size: int, step: int) -> Value:
    t = T(c, grad)
    d = normalize_dim(dim, len(sizes))
    t = t.expand(*(n if i == d else total for i, (n, total) in enumerate(zip(t.shape, sizes))), t.shape[-1])
    others = [i for i in range(t.rank - 1) if i != d]
    made = _overlap_add(t.permute(*others, d, t.rank - 1), step, sizes[d] if sizes else 1)
    if not sizes:
        return made.reshape().value
    return made.permute(*(t.rank - 2 if i == d else i - (i > d) for i in range(t.rank - 1))).value


@aten("col2im")
def col2im(
    c: Any,
    x: Value,
    out: Sequence[Dim],
    kernel: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Value:
    """Columns `[B, C * kh * kw, windows]` to an image: rows of windows first, then columns."""
    require(all(d == 1 for d in dilation), "windows with gaps")
    t = T(c, x)
    *batch, channels, _ = t.shape
    counts = [(n + 2 * p - k) // s + 1 for n, p, k, s in zip(out, padding, kernel, stride)]
    t = t.reshape(*batch, channels // (kernel[0] * kernel[1]), *kernel, *counts)  # …, kh, kw, wh, ww
    n = len(batch) + 1
    high, wide = (size + 2 * p for size, p in zip(out, padding))
    t = _overlap_add(t.permute(*range(n), n + 1, n + 3, n + 2, n), stride[0], high)  # …, kw, ww, high
    t = _overlap_add(t.permute(*range(n), n + 2, n + 1, n), stride[1], wide)  # …, high, wide
    for d, (low, size) in enumerate(zip(padding, out)):
        t = t.slice(n + d, low, size)
    return t.value


def _overlap_add(t: T, step: int, length: Dim) -> T:
    """`[…, windows, size]` to `[…, length]`."""
    *lead, windows, size = t.shape
    if not isinstance(size, int):
        raise Unsupported("windows of a symbolic size")
    pieces = -(-size // step)
    require(pieces <= _MOST_PIECES, f"{pieces} windows that overlap")
    t = _padded(t, 0, pieces * step - size)
    total: T | None = None
    covered = (windows + pieces - 1) * step
    for i in range(pieces):
        row = t.slice(-1, i * step, step).reshape(*lead, windows * step)
        row = _padded(row, i * step, covered - (i + windows) * step)
        total = row if total is None else total + row
    assert total is not None
    if covered == length:
        return total
    # what no window reaches is less than a step
    missing = max(0, length - covered) if isinstance(covered, int) and isinstance(length, int) else step
    return _padded(total, 0, missing).slice(-1, 0, length)


def _padded(t: T, low: Dim, high: Dim) -> T:
    """`t` between zeros along the last dim."""
    if low == 0 and high == 0:
        return t
    lead = (0,) * (t.rank - 1)
    zero = number(0, t.dtype)
    return t.op("pad", low=(*lead, low), high=(*lead, high), value=zero, mode="constant")
