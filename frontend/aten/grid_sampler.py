"""ATen's `grid_sampler_2d`: an image read at real-valued positions, as masked reads at integer ones."""

from __future__ import annotations

from typing import Any

from .registry import Unsupported, Value, aten, require
from .tensor_math import T

BILINEAR, NEAREST = 0, 1
ZEROS, BORDER = 0, 1


@aten("grid_sampler_2d", "_grid_sampler_2d_cpu_fallback")
def grid_sampler(c: Any, x: Value, grid: Value, mode: int, padding: int, align: bool) -> Value:
    image, g = T(c, x), T(c, grid)
    require(image.dtype in ("f32", "f64") and mode in (BILINEAR, NEAREST), "a grid sampler of halves, or a cubic one")
    batch, _, high, wide = image.shape
    if not (isinstance(high, int) and isinstance(wide, int) and high > 0 and wide > 0):
        raise Unsupported("a grid sampler of symbolic or empty size")
    places = [
        _position(g.slice(3, i, 1).reshape(*g.shape[:3]), size, padding, align) for i, size in ((1, high), (0, wide))
    ]
    if mode == NEAREST:
        made = _read(image, [p.op("round") for p in places])
        return made.permute(0, 3, 1, 2).value
    low = [p.op("floor") for p in places]
    part = [p - q for p, q in zip(places, low)]
    total: T | None = None
    for dy in (0, 1):
        for dx in (0, 1):
            weight = (part[0] if dy else 1.0 - part[0]) * (part[1] if dx else 1.0 - part[1])
            corner = _read(image, [low[0] + float(dy) if dy else low[0], low[1] + float(dx) if dx else low[1]])
            term = corner * weight.unsqueeze(-1)
            total = term if total is None else total + term
    assert total is not None
    return total.permute(0, 3, 1, 2).value


def _position(at: T, size: int, padding: int, align: bool) -> T:
    """A coordinate in [-1, 1] as a position in `0 .. size - 1`, brought inside for border and reflection padding."""
    place = (at + 1.0) * 0.5 * float(size - 1) if align else ((at + 1.0) * float(size) - 1.0) * 0.5
    if padding == ZEROS:
        return place
    if padding != BORDER:
        place = _reflected(place, 0.0 if align else -0.5, float(size - 1) if align else size - 0.5)
    return place.op("maximum", 0.0).op("minimum", float(size - 1))


def _reflected(place: T, low: float, high: float) -> T:
    span = high - low
    if span <= 0:
        return place.like(0.0)
    distance = (place - low).abs()
    extra = distance.op("fmod", span)
    flips = (distance / span).op("floor")
    even = flips.op("fmod", 2.0).eq(0.0)
    return even.where(extra + low, span - extra + low)


def _read(image: T, at: list[T]) -> T:
    """Elements at integral positions [N, H', W', C]; 0 outside the image."""
    c = image.c
    sizes: list[Any] = list(image.shape[2:])
    inside: T | None = None
    indices = []
    for place, size in zip(at, sizes):
        valid = place.op("ge", 0.0) & place.op("lt", float(size))
        inside = valid if inside is None else inside & valid
        safe = valid.where(place, 0.0)
        indices.append(safe.to("i64"))
    assert inside is not None
    batch = T(c, c.op("iota", size=(image.shape[0],), start=0, step=1, dtype="i64")).reshape(image.shape[0], 1, 1)
    read = image.op("index", batch, *indices, dims=(0, 2, 3), wrap=False, checked=False)
    return inside.unsqueeze(-1).where(read, 0.0)
