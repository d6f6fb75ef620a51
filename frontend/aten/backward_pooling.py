"""Gradients of poolings: of a maximum, the gradient goes where it was found; of a mean, it is spread over the window."""

from __future__ import annotations

import base64
import itertools
import math
import struct
from collections.abc import Sequence
from typing import Any

from .registry import Value, add, require
from .tensor_math import T
from .windows import even_windows, pool_window


def _to_maxima(c: Any, grad: Value, x: Value, indices: Value, spatial: int) -> Value:
    t, g, at = T(c, x), T(c, grad), T(c, indices)
    lead = t.shape[: t.rank - spatial]
    plane = t.numel(*range(t.rank - spatial, t.rank))
    count = g.numel(*range(g.rank - spatial, g.rank))
    zeros = T(c, c.scalar(0.0, t.dtype, (*lead, plane)))
    made = zeros.op("scatter", at.reshape(*lead, count), g.reshape(*lead, count), dim=len(lead), reduce="add")
    return made.reshape(*t.shape).value


def _max_pool(spatial: int) -> Any:
    def convert(
        c: Any, grad: Value, x: Value, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil: bool, indices: Value
    ) -> Value:
        return _to_maxima(c, grad, x, indices, spatial)

    return convert


def _adaptive_max_pool(spatial: int) -> Any:
    return lambda c, grad, x, indices: _to_maxima(c, grad, x, indices, spatial)


def _avg_pool(spatial: int) -> Any:
    """`grad / count` over windows that touch, else its transposed depthwise convolution with ones; sizes say the counts."""

    def convert(
        c: Any,
        grad: Value,
        x: Value,
        kernel: Any,
        stride: Any,
        padding: Any,
        ceil: bool,
        include: bool,
        divisor: int | None,
    ) -> Value:
        t, g = T(c, x), T(c, grad)
        window = pool_window(kernel, stride, padding, spatial)
        sizes, outs = t.shape[t.rank - spatial :], g.shape[g.rank - spatial :]
        require(all(isinstance(s, int) for s in (*sizes, *outs)), "symbolic spatial sizes")
        counts = _counts(sizes, outs, **window, include=include, divisor=divisor)
        wide = g.wide()
        if len(set(counts)) == 1:
            share = wide / float(counts[0])
        else:
            share = wide / T(c, _floats(c, counts, outs)).to(wide.dtype)
        touching = window["kernel"] == window["stride"] and not any(window["padding"])
        if touching and all(o * k <= n for o, k, n in zip(outs, window["kernel"], sizes)):  # type: ignore[operator]
            return _spread(share.to(t.dtype), window["kernel"], sizes).value
        planes = g.numel(*range(g.rank - spatial))
        extra = [n - ((o - 1) * s - 2 * p + k) for n, o, k, s, p in zip(sizes, outs, *window.values())]
        made = c.op(
            "conv",
            share.reshape(planes, 1, *outs).value,
            c.scalar(1.0, wide.dtype, (1, 1, *window["kernel"])),
            None,
            stride=window["stride"],
            padding=window["padding"],
            dilation=(1,) * spatial,
            transposed=True,
            output_padding=tuple(extra),
        )
        return T(c, made).reshape(*t.shape).to(t.dtype).value

    return convert


def _spread(share: T, window: Sequence[Any], sizes: Sequence[Any]) -> T:
    """Each element over all positions of its window; windows touch, and what is behind the last gets zeros."""
    lead, outs = share.shape[: share.rank - len(sizes)], share.shape[share.rank - len(sizes) :]
    pairs = [d for o in outs for d in (o, 1)]
    wanted = [d for o, k in zip(outs, window) for d in (o, k)]
    ends = [o * k for o, k in zip(outs, window)]
    made = share.reshape(*lead, *pairs).expand(*lead, *wanted).reshape(*lead, *ends)
    high = (*(0 for _ in lead), *(n - end for n, end in zip(sizes, ends)))
    return made.op("pad", low=(0,) * made.rank, high=high, value=0, mode="constant") if any(high) else made


def _counts(
    sizes: Sequence[Any],
    outs: Sequence[Any],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    include: bool,
    divisor: int | None,
) -> list[int]:
    """The divisor of each window, row-major."""
    lengths = []
    for size, out, k, s, p in zip(sizes, outs, kernel, stride, padding):
        each_length = []
        for at in range(out):
            start = at * s - p
            end = min(start + k, size + p)
            each_length.append(end - start if include else min(end, size) - max(start, 0))
        lengths.append(each_length)
    return [divisor or math.prod(window) for window in itertools.product(*lengths)]


def _floats(c: Any, numbers: Sequence[float], shape: Sequence[Any]) -> Value:
    """A literal f32 tensor."""
    data = base64.b64encode(struct.pack(f"<{len(numbers)}f", *numbers)).decode("ascii")
    return c.op("constant", dtype="f32", shape=tuple(shape), data=data)


def _adaptive_avg_pool(spatial: int) -> Any:
    def convert(c: Any, grad: Value, x: Value) -> Value:
        t, g = T(c, x), T(c, grad)
        sizes, outs = t.shape[t.rank - spatial :], g.shape[g.rank - spatial :]
        window = sizes if all(o == 1 for o in outs) else even_windows(sizes, outs)
        require(window is not None, "adaptive windows that overlap")
        assert window is not None
        count = T(c, c.scalar(math.prod(window[1:], start=window[0]), g.wide().dtype))
        return _spread((g.wide() / count).to(t.dtype), window, sizes).value

    return convert


for _n in (2, 3):
    add(f"max_pool{_n}d_with_indices_backward", _max_pool(_n))
    add(f"adaptive_max_pool{_n}d_backward", _adaptive_max_pool(_n))
    add(f"avg_pool{_n}d_backward", _avg_pool(_n))
    add(f"_adaptive_avg_pool{_n}d_backward", _adaptive_avg_pool(_n))
