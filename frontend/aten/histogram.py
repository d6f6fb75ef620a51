"""ATen's `histc`: counts of values in equal parts of an interval, as sums at computed positions."""

from __future__ import annotations

from typing import Any

from .registry import Value, aten, require
from .tensor_math import T


@aten("histc")
def histc(c: Any, x: Value, bins: int = 100, min: float = 0, max: float = 0) -> Value:
    """Counts in `bins` equal parts of `min … max`; `max` lies in the last part, and what is outside in none."""
    require(min < max, "bounds that depend on the data")
    t = T(c, x)
    t = t.reshape(t.numel(*range(t.rank)))
    part = ((t - float(min)) * float(bins) / float(max - min)).op("clamp", low=0.0, high=bins - 1.0)
    inside = t.le(float(max)) & t.op("ge", float(min))
    place = inside.where(part, float(bins)).to("i64")  # one more part, for what is outside
    none = T(c, c.scalar(0, t.dtype, (bins + 1,)))
    counts = none.op("scatter", place, t.like(1), dim=0, reduce="add", include_self=True, index_error=False)
    return counts.slice(0, 0, bins).value
