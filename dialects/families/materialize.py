"""A copy that stays: the boundary where a value must lie in a buffer of its own."""

from __future__ import annotations

from typing import Any

from ..op import Op, Operand, Result, sample
from ..record import TensorType


class Materialize(Op, name="materialize", category="pointwise"):
    """`x`, in a row-major buffer of its own; never folded away, so a result aliases neither inputs nor other results."""

    x: Operand
    y: Result

    samples = (sample((3, 4)), sample(("i64", (5,)), low=-9, high=9), sample(("bool", (4,)), low=0, high=1))

    @staticmethod
    def infer(x: TensorType) -> TensorType:
        return x

    @staticmethod
    def torch(x: Any) -> Any:
        return x.clone()

    @staticmethod
    def reference(x: Any) -> Any:
        return x.copy()

    @staticmethod
    def lower(b: Any, x: Any) -> Any:
        return b.map(lambda s, v: v, x)
