"""ATen's poolings. An unbatched input gets a batch of one; adaptive windows of equal size are ordinary ones.

Overloads that differ by the number of spatial dims only are one function of it, registered at the end.
"""

from __future__ import annotations

from typing import Any

from ...dialects.dims import product
from .registry import Value, add, require
from .tensor_math import T
from .windows import even_windows, per_dim, pool_window


def _batched(c: Any, x: Value, spatial: int) -> tuple[T, bool]:
    t = T(c, x)
    whole = t.rank == spatial + 2
    return (t if whole else t.unsqueeze(0)), whole


def _unbatched(value: T, whole: bool) -> Value:
    return value.value if whole else value.reshape(*value.shape[1:]).value


def _max_pool_with_indices(spatial: int) -> Any:
    def convert(
        c: Any, x: Value, kernel: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil: bool = False
    ) -> tuple[Value, Value]:
        t, whole = _batched(c, x, spatial)
        window = pool_window(kernel, stride, padding, spatial)
        values, indices = t.op("max_pool", **window, dilation=per_dim(dilation, spatial), ceil=bool(ceil))
        return _unbatched(values, whole), _unbatched(indices, whole)

    return convert


def _max_pool(spatial: int) -> Any:
    both = _max_pool_with_indices(spatial)

    def convert(c: Any, x: Value, *window: Any, **options: Any) -> Value:
        return both(c, x, *window, **options)[0]

    return convert


def _avg_pool(spatial: int) -> Any:
    def convert(
        c: Any,
        x: Value,
        kernel: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil: bool = False,
        include: bool = True,
        divisor: int | None = None,
    ) -> Value:
        t, whole = _batched(c, x, spatial)
        window = pool_window(kernel, stride, padding, spatial)
        options = {"ceil": bool(ceil), "count_include_pad": bool(include), "divisor": divisor or 0}
        return _unbatched(t.op("avg_pool", **window, **options), whole)

    return convert


def _adaptive_avg_pool(spatial: int) -> Any:
    def convert(c: Any, x: Value, output: Any) -> Value:
        t, whole = _batched(c, x, spatial)
        sizes = per_dim(output, spatial)
        require(all(isinstance(o, int) for o in sizes), "a symbolic output size")
        if all(o == 1 for o in sizes):
            return _unbatched(t.mean(tuple(range(2, t.rank)), keepdim=True), whole)
        window = even_windows(t.shape[2:], sizes)
        if window is None:
            return _unbatched(t.op("adaptive_avg_pool", output=sizes), whole)
        return _unbatched(t.op("avg_pool", kernel=window, stride=window, padding=(0,) * spatial), whole)

    return convert


def _adaptive_max_pool(spatial: int) -> Any:
    def convert(c: Any, x: Value, output: Any) -> tuple[Value, Value]:
        t, whole = _batched(c, x, spatial)
        sizes = per_dim(output, spatial)
        require(all(isinstance(o, int) for o in sizes), "a symbolic output size")
        window = even_windows(t.shape[2:], sizes)
        if window is None:
            values, indices = t.op("adaptive_max_pool", output=sizes)
        else:
            zeros, ones = (0,) * spatial, (1,) * spatial
            values, indices = t.op("max_pool", kernel=window, stride=window, padding=zeros, dilation=ones)
        return _unbatched(values, whole), _unbatched(indices, whole)

    return convert


def _max_unpool(spatial: int) -> Any:
    """Zeros, with each value back at the position that its pooling gave."""

    def convert(c: Any, x: Value, indices: Value, sizes: Any, stride: Any = None, padding: Any = None) -> Value:
        t, at = T(c, x), T(c, indices)
        lead = t.shape[: t.rank - spatial]
        count, plane = t.numel(*range(t.rank - spatial, t.rank)), product(sizes)
        zeros = T(c, c.scalar(0, t.dtype, (*lead, plane)))
        made = zeros.op("scatter", at.reshape(*lead, count), t.reshape(*lead, count), dim=len(lead))
        return made.reshape(*lead, *sizes).value

    return convert


for _n in (1, 2, 3):
    add(f"max_pool{_n}d", _max_pool(_n))
    add(f"max_pool{_n}d_with_indices", _max_pool_with_indices(_n))
    add(f"avg_pool{_n}d", _avg_pool(_n))
    add(f"adaptive_avg_pool{_n}d", _adaptive_avg_pool(_n))
    add(f"adaptive_max_pool{_n}d", _adaptive_max_pool(_n))
for _n in (2, 3):
    add(f"_adaptive_avg_pool{_n}d", _adaptive_avg_pool(_n))
    add(f"max_unpool{_n}d", _max_unpool(_n))
