"""The few `prims` ops that AOTAutograd puts into graphs itself (its partitioner casts with them)."""

from __future__ import annotations

from typing import Any

from .registry import _CONVERTERS, Value


def convert_element_type(c: Any, x: Value, dtype: str) -> Value:
    """`x` as `dtype`."""
    return c.cast(x, dtype)


_CONVERTERS["prims.convert_element_type.default"] = convert_element_type
