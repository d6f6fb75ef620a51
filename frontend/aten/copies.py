"""ATen's copies and conversions: a cast where the element type changes, and nothing where values do not."""

from __future__ import annotations

from typing import Any

from .registry import Value, aten


@aten("_to_copy", "to.dtype", "to.dtype_layout", "to.device")
def to_copy(c: Any, x: Value, *_: Any, **__: Any) -> Value:
    return c.cast(x, c.out_type.dtype)


@aten("clone", "alias", "detach", "lift_fresh_copy", "lift_fresh", "lift", "contiguous", "alias_copy", "detach_copy")
def same(c: Any, x: Value, **_: Any) -> Value:
    return x
