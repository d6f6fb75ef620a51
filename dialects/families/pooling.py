"""Pooling over windows of the last spatial dims of `[N, C, spatial…]`.

The window is small and static, so a pooling is a gather: each output reads its window's elements and combines them.
"""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any

from ..dims import ceildiv, dim_min, floordiv
from ..dtypes import is_float
from ..lazy import np, pt, wide
from ..op import Attr, Ints, Op, Operand, Result, check, sample
from ..record import TensorType
from .lowering import UNROLLED_WINDOW, fold_window
from .pool_windows import is_inside, keep_larger, keep_larger_in_order, lowest_of, read_place


class MaxPool(Op, name="max_pool", category="gather"):
    """`y[p] = max_k x[p·stride - padding + k·dilation]` and where it was: the flat position in the spatial plane.

    NaN wins, the first maximum else; padding never wins. `ceil` lets a last window start inside and end outside.
    """

    x: Operand
    kernel: Attr[Ints]
    stride: Attr[Ints]
    padding: Attr[Ints]
    dilation: Attr[Ints]
    ceil: Attr[bool] = False
    y: Result
    indices: Result

    samples = (
        sample((2, 3, 7, 6), kernel=(3, 2), stride=(2, 2), padding=(1, 0), dilation=(1, 2)),
        sample((1, 2, 7, 9), kernel=(3, 3), stride=(2, 2), padding=(1, 1), dilation=(1, 1), ceil=True),
        sample((2, 3, 9), kernel=(3,), stride=(3,), padding=(0,), dilation=(1,)),
        sample((1, 2, 9, 8), kernel=(6, 6), stride=(2, 1), padding=(2, 3), dilation=(1, 1)),  # not unrolled
        sample((1, 2, 4, 4, 4), kernel=(2, 2, 2), stride=(2, 2, 2), padding=(0, 0, 0), dilation=(1, 1, 1)),
        sample(("bf16", (1, 2, 5, 5)), kernel=(2, 2), stride=(1, 1), padding=(0, 0), dilation=(1, 1)),
        sample(
            lambda rng: np.array([[[[np.nan, 1, 2, -np.inf], [3, 3, 4, -np.inf], [-np.inf] * 4]]], np.float32),
            kernel=(2, 2), stride=(1, 1), padding=(1, 1), dilation=(1, 1),
        ),
    )  # fmt: skip

    @staticmethod
    def infer(x, kernel, stride, padding, dilation, ceil):
        check(x.dtype != "bool", "is not defined on bool")
        _check_windows(x, kernel, stride, padding)
        check(len(dilation) == len(kernel), f"dilation has {len(dilation)} values, kernel {len(kernel)}")
        shape = (*x.shape[:2], *_sizes(x.shape[2:], kernel, stride, padding, dilation, ceil))
        return TensorType(x.dtype, shape), TensorType("i64", shape)

    @staticmethod
    def torch(x, kernel, stride, padding, dilation, ceil=False):
        pool = (pt.nn.functional.max_pool1d, pt.nn.functional.max_pool2d, pt.nn.functional.max_pool3d)[x.ndim - 3]
        return pool(x, kernel, stride, padding, dilation, ceil_mode=ceil, return_indices=True)

    @staticmethod
    def reference(x, kernel, stride, padding, dilation, ceil):
        spatial = x.shape[2:]
        sizes = _sizes(spatial, kernel, stride, padding, dilation, ceil)
        y = np.full((*x.shape[:2], *sizes), _lowest(x.dtype), x.dtype)
        indices = np.full(y.shape, -1, np.int64)
        for p in product(*map(range, sizes)):
            for k in product(*map(range, kernel)):
                at = tuple(p[i] * stride[i] - padding[i] + k[i] * dilation[i] for i in range(len(p)))
                if any(a < 0 or a >= s for a, s in zip(at, spatial)):
                    continue
                here, flat = (..., *p), np.ravel_multi_index(at, spatial)
                value = x[(..., *at)]
                better = (value > y[here]) | (value != value) | (indices[here] < 0)
                y[here], indices[here] = np.where(better, value, y[here]), np.where(better, flat, indices[here])
        return y, indices

    @staticmethod
    def lower(b, x, kernel, stride, padding, dilation, ceil):
        shape = (*x.shape[:2], *_sizes(x.shape[2:], kernel, stride, padding, dilation, ceil))
        sure = not any(padding) and not ceil

        def step(s, p, k, best, at):
            places = [
                s.add(s.mul(p[2 + i], stride[i]), s.sub(s.mul(k[i], dilation[i]), padding[i])) for i in range(len(k))
            ]
            keep = keep_larger_in_order if prod(kernel) <= UNROLLED_WINDOW else keep_larger
            return keep(s, x, p, places, None if sure else is_inside(s, places, x.shape[2:]), best, at)

        inits = [(lowest_of(x.dtype), x.dtype), (-1, "i64")]
        return fold_window(b, shape, kernel, inits, step, lambda s, p, v, at: (v, at), (x.dtype, "i64"))


class AvgPool(Op, name="avg_pool", category="gather"):
    """`y[p] = sum_k x[p·stride - padding + k] / count`, positions outside counting as zero.

    `count` is `divisor` if that is not 0; else the elements of the window within the padded input, or, without
    `count_include_pad`, within the input.
    """

    x: Operand
    kernel: Attr[Ints]
    stride: Attr[Ints]
    padding: Attr[Ints]
    ceil: Attr[bool] = False
    count_include_pad: Attr[bool] = True
    divisor: Attr[int] = 0
    y: Result

    numerics = "order"
    samples = (
        sample((2, 3, 7, 6), kernel=(3, 2), stride=(2, 2), padding=(1, 0)),
        sample((1, 2, 7, 9), kernel=(3, 3), stride=(2, 2), padding=(1, 1), ceil=True, count_include_pad=False),
        sample((1, 2, 8, 8), kernel=(3, 3), stride=(2, 2), padding=(1, 1), ceil=True),
        sample((2, 3, 9), kernel=(3,), stride=(3,), padding=(1,)),
        sample((1, 2, 9, 8), kernel=(6, 6), stride=(2, 1), padding=(2, 3)),  # not unrolled
        sample((1, 2, 6, 6), kernel=(2, 2), stride=(2, 2), padding=(0, 0), divisor=3),
        sample(("bf16", (1, 2, 6, 6)), kernel=(3, 3), stride=(3, 3), padding=(0, 0)),
    )

    @staticmethod
    def infer(x, kernel, stride, padding, ceil, count_include_pad, divisor):
        check(x.dtype != "bool", "is not defined on bool")
        _check_windows(x, kernel, stride, padding)
        return TensorType(x.dtype, (*x.shape[:2], *_sizes(x.shape[2:], kernel, stride, padding, None, ceil)))

    @staticmethod
    def torch(x, kernel, stride, padding, ceil=False, count_include_pad=True, divisor=0):
        if x.ndim == 3:
            return pt.nn.functional.avg_pool1d(x, kernel, stride, padding, ceil, count_include_pad)
        pool = (pt.nn.functional.avg_pool2d, pt.nn.functional.avg_pool3d)[x.ndim - 4]
        return pool(x, kernel, stride, padding, ceil, count_include_pad, divisor or None)

    @staticmethod
    def reference(x, kernel, stride, padding, ceil, count_include_pad, divisor):
        spatial = x.shape[2:]
        sizes = _sizes(spatial, kernel, stride, padding, None, ceil)
        y = np.zeros((*x.shape[:2], *sizes))
        for p in product(*map(range, sizes)):
            start = [a * s - d for a, s, d in zip(p, stride, padding)]
            padded = [min(a + k, s + d) for a, k, s, d in zip(start, kernel, spatial, padding)]
            window = tuple(slice(max(a, 0), min(e, s)) for a, e, s in zip(start, padded, spatial))
            inside = np.prod([w.stop - w.start for w in window])
            count = divisor or (np.prod([e - a for a, e in zip(start, padded)]) if count_include_pad else inside)
            y[(..., *p)] = wide(x)[(..., *window)].sum(tuple(range(2, x.ndim))) / count
        return y.astype(x.dtype)

    @staticmethod
    def lower(b, x, kernel, stride, padding, ceil, count_include_pad, divisor):
        shape = (*x.shape[:2], *_sizes(x.shape[2:], kernel, stride, padding, None, ceil))
        sure, acc = not any(padding) and not ceil, b.accumulator(x.dtype)

        def step(s, p, k, total):
            places = [s.add(s.mul(p[2 + i], stride[i]), s.sub(k[i], padding[i])) for i in range(len(k))]
            inside = None if sure else is_inside(s, places, x.shape[2:])
            return (s.add(total, s.cast(read_place(s, x, p, places, inside, 0), acc)),)

        def finish(s, p, total):
            if divisor or sure:
                count = s.const(divisor or prod(kernel), acc)
            else:
                size = s.const(1, "index")
                for i, extent in enumerate(x.shape[2:]):
                    start = s.sub(s.mul(p[2 + i], stride[i]), padding[i])
                    end = s.minimum(s.add(start, kernel[i]), s.size(extent + padding[i]))
                    if not count_include_pad:
                        start, end = s.maximum(start, 0), s.minimum(end, s.size(extent))
                    size = s.mul(size, s.sub(end, start))
                count = s.cast(size, acc)
            return (s.cast(s.div(total, count, rounding="none" if is_float(acc) else "trunc"), x.dtype),)

        return fold_window(b, shape, kernel, [(0, acc)], step, finish, (x.dtype,))[0]


def _check_windows(x, kernel, stride, padding):
    check(x.rank == len(kernel) + 2, f"takes [N, C, spatial…] with {len(kernel)} spatial dims, got rank {x.rank}")
    for name, value in (("stride", stride), ("padding", padding)):
        check(len(value) == len(kernel), f"{name} has {len(value)} values, kernel {len(kernel)}")
    check(all(2 * p <= k for p, k in zip(padding, kernel)), "padding must be at most half the kernel")


def _sizes(spatial, kernel, stride, padding, dilation, ceil) -> tuple[Any, ...]:
    """Spatial sizes of a pooled tensor; with `ceil` the last window still starts inside the input or left padding."""
    sizes = []
    for i, size in enumerate(spatial):
        room = size + 2 * padding[i] - (dilation[i] if dilation else 1) * (kernel[i] - 1) - 1
        if not ceil:
            sizes.append(floordiv(room, stride[i]) + 1)
            continue
        sizes.append(dim_min(ceildiv(room, stride[i]) + 1, floordiv(size + padding[i] - 1, stride[i]) + 1))
    check(all(not isinstance(s, int) or s > 0 for s in sizes), f"the output would have spatial size {sizes}")
    return tuple(sizes)


def _lowest(dtype):
    """The value that any element beats or equals."""
    return np.iinfo(dtype).min if dtype.kind in "iu" else -np.inf
