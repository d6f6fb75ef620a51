"""Pooling over windows of the last spatial dims of `[N, C, spatial…]`.

The window is small and static, so a pooling is a gather: each output reads its window's elements and combines them.
"""

from __future__ import annotations

from itertools import product
from math import inf, prod
from typing import Any

from ..dims import ceildiv, dim_min, floordiv
from ..dtypes import bits, is_float
from ..lazy import np, pt, wide
from ..op import Attr, Ints, Op, Operand, Result, check, sample
from ..record import TensorType
from .lowering import UNROLLED_WINDOW, fold_window


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
            keep = _keep_larger_in_order if prod(kernel) <= UNROLLED_WINDOW else _keep_larger
            return keep(s, x, p, places, None if sure else _inside(s, places, x.shape[2:]), best, at)

        inits = [(_lowest_of(x.dtype), x.dtype), (-1, "i64")]
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
            inside = None if sure else _inside(s, places, x.shape[2:])
            return (s.add(total, s.cast(_read(s, x, p, places, inside, 0), acc)),)

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


class AdaptiveAvgPool(Op, name="adaptive_avg_pool", category="gather"):
    """The mean over window `floor(p·I/O) .. ceil((p+1)·I/O)` of each spatial dim, `I` sizes in, `O = output` sizes out."""

    x: Operand
    output: Attr[Ints]
    y: Result

    numerics = "order"
    samples = (
        sample((2, 3, 7, 6), output=(3, 4)),
        sample((1, 2, 5), output=(2,)),
        sample((1, 2, 13, 14), output=(2, 2)),  # not unrolled
        sample((1, 2, 3, 3), output=(5, 1)),
        sample(("bf16", (1, 2, 5, 5)), output=(3, 3)),
    )

    @staticmethod
    def infer(x, output):
        check(is_float(x.dtype), f"takes a float tensor, got {x.dtype}")
        _check_adaptive(x, output)
        return TensorType(x.dtype, (*x.shape[:2], *output))

    @staticmethod
    def torch(x, output):
        pool = (
            pt.nn.functional.adaptive_avg_pool1d,
            pt.nn.functional.adaptive_avg_pool2d,
            pt.nn.functional.adaptive_avg_pool3d,
        )
        return pool[x.ndim - 3](x, output)

    @staticmethod
    def reference(x, output):
        y = np.zeros((*x.shape[:2], *output))
        for p in product(*map(range, output)):
            y[(..., *p)] = wide(x)[(..., *_adaptive_window(p, x.shape[2:], output))].mean(tuple(range(2, x.ndim)))
        return y.astype(x.dtype)

    @staticmethod
    def lower(b, x, output):
        window, acc = _largest_windows(x.shape[2:], output), b.accumulator(x.dtype)

        def step(s, p, k, total):
            places, inside = _adaptive_places(s, p, k, x.shape[2:], output)
            return (s.add(total, s.cast(_read(s, x, p, places, inside, 0), acc)),)

        def finish(s, p, total):
            size = s.const(1, "index")
            for a, extent, o in zip(p[2:], x.shape[2:], output):
                size = s.mul(size, s.sub(*_adaptive_ends(s, a, extent, o)[::-1]))
            return (s.cast(s.div(total, s.cast(size, acc)), x.dtype),)

        return fold_window(b, (*x.shape[:2], *output), window, [(0, acc)], step, finish, (x.dtype,))[0]


class AdaptiveMaxPool(Op, name="adaptive_max_pool", category="gather"):
    """The maximum over the windows of `adaptive_avg_pool` and its flat position in the spatial plane; NaN wins."""

    x: Operand
    output: Attr[Ints]
    y: Result
    indices: Result

    samples = (
        sample((2, 3, 7, 6), output=(3, 4)),
        sample((1, 2, 5), output=(2,)),
        sample((1, 2, 3, 3), output=(5, 1)),
    )

    @staticmethod
    def infer(x, output):
        check(is_float(x.dtype), f"takes a float tensor, got {x.dtype}")
        _check_adaptive(x, output)
        shape = (*x.shape[:2], *output)
        return TensorType(x.dtype, shape), TensorType("i64", shape)

    @staticmethod
    def torch(x, output):
        pool = (
            pt.nn.functional.adaptive_max_pool1d,
            pt.nn.functional.adaptive_max_pool2d,
            pt.nn.functional.adaptive_max_pool3d,
        )
        return pool[x.ndim - 3](x, output, return_indices=True)

    @staticmethod
    def reference(x, output):
        y = np.zeros((*x.shape[:2], *output), x.dtype)
        indices = np.zeros(y.shape, np.int64)
        positions = np.arange(np.prod(x.shape[2:])).reshape(x.shape[2:])
        for p in product(*map(range, output)):
            window = _adaptive_window(p, x.shape[2:], output)
            values = x[(..., *window)].reshape(*x.shape[:2], -1)
            best = values.argmax(-1)[..., None]
            y[(..., *p)] = np.take_along_axis(values, best, -1)[..., 0]
            indices[(..., *p)] = positions[window].reshape(-1)[best[..., 0]]
        return y, indices

    @staticmethod
    def lower(b, x, output):
        def step(s, p, k, best, at):
            places, inside = _adaptive_places(s, p, k, x.shape[2:], output)
            return _keep_larger(s, x, p, places, inside, best, at)

        window, inits = _largest_windows(x.shape[2:], output), [(_lowest_of(x.dtype), x.dtype), (-1, "i64")]
        shape = (*x.shape[:2], *output)
        return fold_window(b, shape, window, inits, step, lambda s, p, v, at: (v, at), (x.dtype, "i64"))


def _check_windows(x, kernel, stride, padding):
    check(x.rank == len(kernel) + 2, f"takes [N, C, spatial…] with {len(kernel)} spatial dims, got rank {x.rank}")
    for name, value in (("stride", stride), ("padding", padding)):
        check(len(value) == len(kernel), f"{name} has {len(value)} values, kernel {len(kernel)}")
    check(all(2 * p <= k for p, k in zip(padding, kernel)), "padding must be at most half the kernel")


def _check_adaptive(x, output):
    check(x.rank == len(output) + 2, f"takes [N, C, spatial…] with {len(output)} spatial dims, got rank {x.rank}")
    check(all(isinstance(s, int) for s in x.shape[2:]), "needs static spatial sizes")
    check(all(s > 0 for s in x.shape[2:]), "needs spatial sizes that are not 0")


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


def _adaptive_window(p, spatial, output):
    return tuple(slice(a * i // o, -(-(a + 1) * i // o)) for a, i, o in zip(p, spatial, output))


def _lowest_of(dtype):
    """The identity of max in the element type called `dtype`."""
    if is_float(dtype):
        return -inf
    return -(2 ** (bits(dtype) - 1)) if dtype.startswith("i") else 0


def _inside(s, places, spatial):
    """Whether a spatial position lies in `x`."""
    ok = None
    for place, size in zip(places, spatial):
        here = s.bitwise_and(s.ge(place, 0), s.lt(place, s.size(size)))
        ok = here if ok is None else s.bitwise_and(ok, here)
    return ok


def _read(s, x, p, places, inside, other):
    """The element of `x` in plane `p[:2]` at `places`, or `other` where `inside` does not hold (None: it always does).

    Each place outside is moved to its own edge, so that windows of one row share rows, and their reads stay side by side.
    """
    if inside is None:
        return s.read(x, [*p[:2], *places])
    kept = [s.minimum(s.maximum(place, 0), s.sub(s.size(size), 1)) for place, size in zip(places, x.shape[2:])]
    return s.select(inside, s.read(x, [*p[:2], *kept]), other)


def _keep_larger(s, x, p, places, inside, best, at):
    """The better of `(best, at)` and the element at `places`: the last NaN, else the first maximum, in any order."""
    value, here = _element(s, x, p, places, inside)
    first = s.bitwise_or(s.lt(at, 0), s.bitwise_and(s.eq(value, best), s.lt(here, at)))
    take = s.bitwise_or(s.gt(value, best), first)
    if is_float(x.dtype):
        # against a NaN the comparisons above are false, so a kept NaN yields only to a later one
        later = s.bitwise_or(s.bitwise_not(s.isnan(best)), s.gt(here, at))
        take = s.bitwise_or(take, s.bitwise_and(s.isnan(value), later))
    take = take if inside is None else s.bitwise_and(take, inside)
    return s.select(take, value, best), s.select(take, here, at)


def _keep_larger_in_order(s, x, p, places, inside, best, at):
    """The same where elements come in order: the value does not depend on positions, which often nobody needs."""
    value, here = _element(s, x, p, places, inside)
    larger = s.gt(value, best)  # never outside, where the value is the lowest
    if is_float(x.dtype):
        larger = s.bitwise_or(larger, s.isnan(value))
    first = s.lt(at, 0) if inside is None else s.bitwise_and(s.lt(at, 0), inside)
    return s.maximum(best, value), s.select(s.bitwise_or(larger, first), here, at)


def _element(s, x, p, places, inside):
    """The element at `places`, the lowest value outside, and its flat position in the spatial plane."""
    flat = s.const(0, "index")
    for place, size in zip(places, x.shape[2:]):
        flat = s.add(s.mul(flat, s.size(size)), place)
    return _read(s, x, p, places, inside, _lowest_of(x.dtype)), s.cast(flat, "i64")


def _adaptive_ends(s, a, extent, output):
    """First and last-but-one index of window `a` of `output` over `extent` elements."""
    start = s.div(s.mul(a, extent), output, rounding="floor")
    return start, s.div(s.add(s.mul(s.add(a, 1), extent), output - 1), output, rounding="floor")


def _adaptive_places(s, p, k, spatial, output):
    """The position of element `k` of window `p`, and whether the window is that large."""
    places, inside = [], None
    for a, i, extent, o in zip(p[2:], k, spatial, output):
        start, end = _adaptive_ends(s, a, extent, o)
        places.append(s.add(start, i))
        ok = s.lt(places[-1], end)
        inside = ok if inside is None else s.bitwise_and(inside, ok)
    return places, inside


def _largest_windows(spatial, output):
    """The size of the largest window of each dim."""
    sizes = []
    for i, o in zip(spatial, output):
        sizes.append(max((-(-(a + 1) * i // o) - a * i // o for a in range(o)), default=1))
    return sizes
