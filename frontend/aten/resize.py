"""ATen's image resizing, as reads at indices and weights that are computed here, with eager's f32 arithmetic."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any

from .creation import literal
from .registry import Value, aten, require
from .tensor_math import T


def _f32(x: float) -> float:
    return struct.unpack("f", struct.pack("f", x))[0]


def _static(t: T, out: Sequence[Any], spatial: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    have, want = t.shape[-spatial:], tuple(out[-spatial:])
    require(all(isinstance(n, int) and n > 0 for n in (*have, *want)), "resizing of a symbolic or empty size")
    return have, want  # type: ignore[return-value]


def _factors(spatial: int, scales: Sequence[float | None]) -> tuple[float | None, ...]:
    flat = [s for group in scales for s in (group if isinstance(group, (list, tuple)) else (group,))]
    return tuple(flat[i] if i < len(flat) else None for i in range(spatial))


def _nearest(have: int, want: int, scale: float | None, exact: bool) -> list[int]:
    """Where each output element reads: `floor(i * have / want)`, or the nearest centre if `exact`."""
    ratio = _f32(1 / scale) if scale else _f32(_f32(have) / _f32(want))
    if exact:
        return [min(int(_f32(_f32(i + 0.5) * ratio)), have - 1) for i in range(want)]
    if have == want:
        return list(range(want))
    return [min(int(_f32(_f32(i) * ratio)), have - 1) for i in range(want)]


def _take(t: T, dim: int, index: list[int]) -> T:
    if len(index) == t.shape[dim] and index == list(range(len(index))):
        return t
    places = T(t.c, literal(t.c, index, "i32", (len(index),)))
    return t.op("index", places, dims=(dim,), wrap=False, checked=False)


def _repeat(t: T, dim: int, index: list[int]) -> T | None:
    """`t` at `index` along `dim` as a view, where each element is there equally often; else None.

    Along the last dim, once, twice, four times …: a vector has a whole number of such runs, and others are read at places out of
    a table sooner than at quotients.
    """
    size = t.shape[dim]
    assert isinstance(size, int)
    times = len(index) // size
    if (dim == t.rank - 1 and times & (times - 1)) or index != [i // times for i in range(size * times)]:
        return None
    before, after = t.shape[:dim], t.shape[dim + 1 :]
    return t.unsqueeze(dim + 1).expand(*before, size, times, *after).reshape(*before, size * times, *after)


def _resize_nearest(c: Any, x: Value, scales: Sequence[Any], spatial: int, exact: bool) -> Value:
    t = T(c, x)
    have, want = _static(t, c.out_type.shape, spatial)
    first = t.rank - spatial
    picked: list[tuple[int, list[int]]] = []
    for i, scale in enumerate(_factors(spatial, scales)):
        dim, index = first + i, _nearest(have[i], want[i], scale, exact)
        view = _repeat(t, dim, index)
        if view is None:
            picked.append((dim, index))
        else:
            t = view
    if not picked:
        return t.op("materialize").value
    for dim, index in picked:  # of what is repeated already, so that one kernel reads it
        t = _take(t, dim, index)
    return t.value


def _register_nearest(spatial: int) -> None:
    for exact, stem in ((False, "upsample_nearest"), (True, "_upsample_nearest_exact")):

        def convert(c: Any, x: Value, size: Any, *scales: Any, exact: bool = exact) -> Value:
            return _resize_nearest(c, x, scales, spatial, exact)

        aten(f"{stem}{spatial}d", f"{stem}{spatial}d.vec")(convert)


for _spatial in (1, 2, 3):
    _register_nearest(_spatial)


# -- linear -----------------------------------------------------------------------------------------------------
def _linear(have: int, want: int, scale: float | None, align: bool) -> tuple[list[int], list[int], list[float]]:
    """The two elements that output element `i` lies between, and the weight of the second."""
    if align:
        ratio = _f32((have - 1) / (want - 1)) if want > 1 else 0.0
    else:
        ratio = _f32(1 / scale) if scale else _f32(have / want)
    first, second, weights = [], [], []
    for i in range(want):
        at = _f32(ratio * i) if align else max(_f32(_f32(ratio * _f32(i + 0.5)) - 0.5), 0.0)
        low = min(int(at), have - 1)
        first.append(low)
        second.append(low + (1 if low < have - 1 else 0))
        weights.append(min(max(_f32(at - low), 0.0), 1.0))
    return first, second, weights


def _resize_linear(c: Any, x: Value, align: bool, scales: Sequence[Any], spatial: int) -> Value:
    t = T(c, x)
    dtype = t.dtype
    require(dtype in ("f32", "f64"), "linear resizing of integers, or of halves, whose weights eager rounds")
    have, want = _static(t, c.out_type.shape, spatial)
    t = t.wide()
    weight_dtype = "f64" if dtype == "f64" else "f32"
    for i, scale in reversed(list(enumerate(_factors(spatial, scales)))):
        if have[i] == want[i] and (scale in (None, 1.0)):
            continue
        dim = t.rank - spatial + i
        first, second, weights = _linear(have[i], want[i], scale, align)
        shape = (want[i], *[1] * (spatial - 1 - i))
        low = T(c, literal(c, [1.0 - w for w in weights], weight_dtype, shape))
        high = T(c, literal(c, weights, weight_dtype, shape))
        t = _take(t, dim, first) * low + _take(t, dim, second) * high
    return t.to(dtype).value


def _register_linear(spatial: int, stem: str) -> None:
    def convert(c: Any, x: Value, size: Any, align: bool, *scales: Any) -> Value:
        return _resize_linear(c, x, align, scales, spatial)

    aten(stem, f"{stem}.vec")(convert)


_LINEAR: dict[int, str] = {1: "upsample_linear1d", 2: "upsample_bilinear2d", 3: "upsample_trilinear3d"}
for _spatial, _stem in _LINEAR.items():
    _register_linear(_spatial, _stem)


# -- cubic ------------------------------------------------------------------------------------------------------
def _cubic(have: int, want: int, scale: float | None, align: bool) -> tuple[list[list[int]], list[list[float]]]:
    """The four elements around each output position (edges repeated), and their weights for A = -0.75."""
    if align:
        ratio = _f32((have - 1) / (want - 1)) if want > 1 else 0.0
    else:
        ratio = _f32(1 / scale) if scale else _f32(have / want)
    places: list[list[int]] = [[], [], [], []]
    weights: list[list[float]] = [[], [], [], []]
    for i in range(want):
        at = _f32(ratio * i) if align else _f32(_f32(ratio * _f32(i + 0.5)) - 0.5)
        low = math.floor(at)
        t = min(max(_f32(at - low), 0.0), 1.0)
        for k, w in enumerate((_outer(t + 1), _inner(t), _inner(1 - t), _outer(2 - t))):
            places[k].append(min(max(low + k - 1, 0), have - 1))
            weights[k].append(w)
    return places, weights


def _inner(x: float, a: float = -0.75) -> float:
    return ((a + 2) * x - (a + 3)) * x * x + 1


def _outer(x: float, a: float = -0.75) -> float:
    return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a


@aten("upsample_bicubic2d", "upsample_bicubic2d.vec")
def bicubic(c: Any, x: Value, size: Any, align: bool, *scales: Any) -> Value:
    t = T(c, x)
    dtype = t.dtype
    require(dtype in ("f32", "f64"), "cubic resizing of integers, or of halves, whose weights eager rounds")
    have, want = _static(t, c.out_type.shape, 2)
    for i, scale in reversed(list(enumerate(_factors(2, scales)))):
        dim = t.rank - 2 + i
        places, weights = _cubic(have[i], want[i], scale, align)
        shape = (want[i], *[1] * (1 - i))
        parts = [_take(t, dim, at) * T(c, literal(c, w, dtype, shape)) for at, w in zip(places, weights)]
        t = parts[0] + parts[1] + parts[2] + parts[3]
    return t.value
