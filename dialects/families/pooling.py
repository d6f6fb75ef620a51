"""Pooling over windows of the last spatial dims of `[N, C, spatial…]`.

The window is small and static, so a pooling is a gather: each output reads its window's elements and combines them.
"""

from __future__ import annotations

from itertools import product

from ..dims import Dim, ceildiv, dim_min, floordiv
from ..dtypes import is_float
from ..lazy import np, pt, wide
from ..op import Attr, Ints, Op, Operand, Result, check, sample
from ..record import TensorType


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
        raise NotImplementedError


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
        raise NotImplementedError


class AdaptiveAvgPool(Op, name="adaptive_avg_pool", category="gather"):
    """The mean over window `floor(p·I/O) .. ceil((p+1)·I/O)` of each spatial dim, `I` sizes in, `O = output` sizes out."""

    x: Operand
    output: Attr[Ints]
    y: Result

    numerics = "order"
    samples = (
        sample((2, 3, 7, 6), output=(3, 4)),
        sample((1, 2, 5), output=(2,)),
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
        raise NotImplementedError


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
        raise NotImplementedError


def _check_windows(x, kernel, stride, padding):
    check(x.rank == len(kernel) + 2, f"takes [N, C, spatial…] with {len(kernel)} spatial dims, got rank {x.rank}")
    for name, value in (("stride", stride), ("padding", padding)):
        check(len(value) == len(kernel), f"{name} has {len(value)} values, kernel {len(kernel)}")
    check(all(2 * p <= k for p, k in zip(padding, kernel)), "padding must be at most half the kernel")


def _check_adaptive(x, output):
    check(x.rank == len(output) + 2, f"takes [N, C, spatial…] with {len(output)} spatial dims, got rank {x.rank}")
    check(all(isinstance(s, int) for s in x.shape[2:]), "needs static spatial sizes")
    check(all(s > 0 for s in x.shape[2:]), "needs spatial sizes that are not 0")


def _sizes(spatial, kernel, stride, padding, dilation, ceil) -> tuple[Dim, ...]:
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
