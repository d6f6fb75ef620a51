"""The few `prims` ops that torch puts into graphs itself: AOTAutograd's partitioner casts, Dynamo takes `addcmul` apart."""

from __future__ import annotations

from typing import Any

from .registry import Value, overloads
from .tensor_math import T


@overloads("prims.convert_element_type.default")
def convert_element_type(c: Any, x: Value, dtype: str) -> Value:
    """`x` as `dtype`."""
    return c.cast(x, dtype)


@overloads("prims.fma.default")
def fma(c: Any, a: Value, b: Value, addend: Value) -> Value:
    """`a * b + addend`, rounded twice, as eager's."""
    (x, y), _ = c.promote(a, b)
    return (T(c, x) * T(c, y) + T(c, addend)).value
