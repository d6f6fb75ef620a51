"""The few `prims` ops that AOTAutograd puts into graphs itself (its partitioner casts with them)."""

from __future__ import annotations

from typing import Any

from .registry import Value, overloads


@overloads("prims.convert_element_type.default")
def convert_element_type(c: Any, x: Value, dtype: str) -> Value:
    """`x` as `dtype`."""
    return c.cast(x, dtype)
