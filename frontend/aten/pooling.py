"""ATen's poolings. An unbatched input gets a batch of one; adaptive windows of equal size are ordinary ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...dialects.dims import product
from .convolution import _each as each
from .registry import Value, aten, require
from .tensor_math import T


def _batched(c: Any, x: Value, spatial: int) -> tuple[T, bool]:
    t = T(c, x)
    whole = t.rank == spatial + 2
    return (t if whole else t.unsqueeze(0)), whole


def _unbatched(value: T, whole: bool) -> Value:
    return value.value if whole else value.reshape(*value.shape[1:]).value


def _max_pool(
    c: Any, spatial: int, x: Value, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil: bool
) -> tuple:
    t, whole = _batched(c, x, spatial)
    kernel = each(kernel, spatial)
    values, indices = t.op(
        "max_pool",
        kernel=kernel,
        stride=each(stride, spatial) if stride not in (None, [], ()) else kernel,
        padding=each(padding, spatial),
        dilation=each(dilation, spatial),
        ceil=bool(ceil),
    )
    return _unbatched(values, whole), _unbatched(indices, whole)


@aten("max_pool2d_with_indices")
def max_pool2d_with_indices(
    c: Any, x: Value, kernel: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil: bool = False
) -> tuple:
    return _max_pool(c, 2, x, kernel, stride, padding, dilation, ceil)


@aten("max_pool3d_with_indices")
def max_pool3d_with_indices(
    c: Any, x: Value, kernel: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil: bool = False
) -> tuple:
    return _max_pool(c, 3, x, kernel, stride, padding, dilation, ceil)


@aten("max_pool1d_with_indices")
def max_pool1d_with_indices(
    c: Any, x: Value, kernel: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil: bool = False
) -> tuple:
    return _max_pool(c, 1, x, kernel, stride, padding, dilation, ceil)


@aten("max_pool1d")
def max_pool1d(
    c: Any, x: Value, kernel: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil: bool = False
) -> Value:
    return _max_pool(c, 1, x, kernel, stride, padding, dilation, ceil)[0]


@aten("max_pool2d")
def max_pool2d(
    c: Any, x: Value, kernel: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil: bool = False
) -> Value:
    return _max_pool(c, 2, x, kernel, stride, padding, dilation, ceil)[0]


@aten("max_pool3d")
def max_pool3d(
    c: Any, x: Value, kernel: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil: bool = False
) -> Value:
    return _max_pool(c, 3, x, kernel, stride, padding, dilation, ceil)[0]


def _avg_pool(
    c: Any,
    spatial: int,
    x: Value,
    kernel: Any,
    stride: Any,
    padding: Any,
    ceil: bool,
    include: bool,
    divisor: int | None,
) -> Value:
    t, whole = _batched(c, x, spatial)
    kernel = each(kernel, spatial)
    made = t.op(
        "avg_pool",
        kernel=kernel,
        stride=each(stride, spatial) if stride not in (None, [], ()) else kernel,
        padding=each(padding, spatial),
        ceil=bool(ceil),
        count_include_pad=bool(include),
        divisor=divisor or 0,
    )
    return _unbatched(made, whole)


@aten("avg_pool1d")
def avg_pool1d(
    c: Any, x: Value, kernel: Any, stride: Any = None, padding: Any = 0, ceil: bool = False, include: bool = True
) -> Value:
    return _avg_pool(c, 1, x, kernel, stride, padding, ceil, include, None)


@aten("avg_pool2d")
def avg_pool2d(
    c: Any,
    x: Value,
    kernel: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil: bool = False,
    include: bool = True,
    divisor: int | None = None,
) -> Value:
    return _avg_pool(c, 2, x, kernel, stride, padding, ceil, include, divisor)


@aten("avg_pool3d")
def avg_pool3d(
    c: Any,
    x: Value,
    kernel: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil: bool = False,
    include: bool = True,
    divisor: int | None = None,
) -> Value:
    return _avg_pool(c, 3, x, kernel, stride, padding, ceil, include, divisor)


def even_windows(spatial: Sequence[Any], output: Sequence[Any]) -> tuple[int, ...] | None:
    """The window size of each dim if adaptive windows are disjoint and equal, else None."""
    if not all(isinstance(s, int) and o > 0 and s > 0 and s % o == 0 for s, o in zip(spatial, output)):
        return None
    return tuple(s // o for s, o in zip(spatial, output))


def _adaptive_avg_pool(c: Any, spatial: int, x: Value, output: Any) -> Value:
    t, whole = _batched(c, x, spatial)
    sizes = each(output, spatial)
    require(all(isinstance(o, int) for o in sizes), "a symbolic output size")
    if all(o == 1 for o in sizes):
        return _unbatched(t.mean(tuple(range(2, t.rank)), keepdim=True), whole)
    window = even_windows(t.shape[2:], sizes)
    if window is None:
        return _unbatched(t.op("adaptive_avg_pool", output=sizes), whole)
    return _unbatched(t.op("avg_pool", kernel=window, stride=window, padding=(0,) * spatial), whole)


@aten("adaptive_avg_pool1d")
def adaptive_avg_pool1d(c: Any, x: Value, output: Any) -> Value:
    return _adaptive_avg_pool(c, 1, x, output)


@aten("_adaptive_avg_pool2d", "adaptive_avg_pool2d")
def adaptive_avg_pool2d(c: Any, x: Value, output: Any) -> Value:
    return _adaptive_avg_pool(c, 2, x, output)


@aten("_adaptive_avg_pool3d", "adaptive_avg_pool3d")
def adaptive_avg_pool3d(c: Any, x: Value, output: Any) -> Value:
    return _adaptive_avg_pool(c, 3, x, output)


def _adaptive_max_pool(c: Any, spatial: int, x: Value, output: Any) -> tuple:
    t, whole = _batched(c, x, spatial)
    sizes = each(output, spatial)
    require(all(isinstance(o, int) for o in sizes), "a symbolic output size")
    window = even_windows(t.shape[2:], sizes)
    if window is None:
        values, indices = t.op("adaptive_max_pool", output=sizes)
    else:
        zeros, ones = (0,) * spatial, (1,) * spatial
        values, indices = t.op("max_pool", kernel=window, stride=window, padding=zeros, dilation=ones)
    return _unbatched(values, whole), _unbatched(indices, whole)


@aten("adaptive_max_pool1d")
def adaptive_max_pool1d(c: Any, x: Value, output: Any) -> tuple:
    return _adaptive_max_pool(c, 1, x, output)


@aten("adaptive_max_pool2d")
def adaptive_max_pool2d(c: Any, x: Value, output: Any) -> tuple:
    return _adaptive_max_pool(c, 2, x, output)


@aten("adaptive_max_pool3d")
def adaptive_max_pool3d(c: Any, x: Value, output: Any) -> tuple:
    return _adaptive_max_pool(c, 3, x, output)


@aten("max_unpool2d")
def max_unpool2d(c: Any, x: Value, indices: Value, sizes: Any) -> Value:
    return _max_unpool(c, 2, x, indices, sizes)


@aten("max_unpool3d")
def max_unpool3d(c: Any, x: Value, indices: Value, sizes: Any, stride: Any, padding: Any) -> Value:
    return _max_unpool(c, 3, x, indices, sizes)


def _max_unpool(c: Any, spatial: int, x: Value, indices: Value, sizes: Any) -> Value:
    """Zeros, with each value back at the position that its pooling gave."""
    t, at = T(c, x), T(c, indices)
    lead = t.shape[: t.rank - spatial]
    count, plane = t.numel(*range(t.rank - spatial, t.rank)), product(sizes)
    zeros = T(c, c.scalar(0, t.dtype, (*lead, plane)))
    made = zeros.op("scatter", at.reshape(*lead, count), t.reshape(*lead, count), dim=len(lead))
    return made.reshape(*lead, *sizes).value
