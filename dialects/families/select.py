"""Choices: `where` and `clamp`."""

from __future__ import annotations

from ..dtypes import is_float
from ..lazy import np, pt
from ..op import Attr, Op, Operand, Result, Sample, Scalar, broadcast, check, sample
from ..record import TensorType
from .binary import same_dtype
from .unary import specials


class Where(Op, name="where", category="pointwise"):
    """`a` where `condition`, else `b`; all three broadcast."""

    condition: Operand
    a: Operand
    b: Operand
    y: Result

    samples = (
        sample(("bool", (2, 3)), (3,), (2, 1)),
        sample(("bool", ()), ("i64", (4,)), ("i64", (4,))),
        sample(("bool", (4,)), ("bf16", ()), ("bf16", (4,))),
        sample(("bool", (5,)), ("bool", (5,)), ("bool", (5,))),
    )

    @staticmethod
    def infer(condition, a, b):
        check(condition.dtype == "bool", f"the condition is bool, got {condition.dtype}")
        return TensorType(same_dtype(a, b), broadcast(condition.shape, a.shape, b.shape))

    @staticmethod
    def torch(condition, a, b):
        return pt.where(condition, a, b)

    @staticmethod
    def reference(condition, a, b):
        return np.where(condition, a, b)

    # `b` is an operand here, so the builder comes by position as `builder`
    @staticmethod
    def lower(builder, condition, a, b):
        return builder.where(condition, a, b)


class Clamp(Op, name="clamp", category="pointwise"):
    """`min(max(x, low), high)`; a bound that is None is absent, NaN stays, `high` wins if the bounds cross."""

    x: Operand
    low: Attr[Scalar] = None  # type: ignore[assignment]
    high: Attr[Scalar] = None  # type: ignore[assignment]
    y: Result

    samples = (
        Sample((("f32", (3, 5)),), {"low": -0.5, "high": 0.75}),
        Sample((specials(),), {"low": -1.0}),
        Sample((("i32", (9,)),), {"high": 1}, -3, 3),
        Sample((("u8", (9,)),), {"low": 3, "high": 2}, 0, 9),
        Sample((("bf16", (9,)),), {"low": 0.1, "high": 0.3}),
    )

    @staticmethod
    def infer(x, low, high):
        check(x.dtype != "bool", "does not take bool")
        check(is_float(x.dtype) or not any(isinstance(v, float) for v in (low, high)), f"float bounds of {x.dtype}")
        return x

    @staticmethod
    def torch(x, low, high):
        return pt.clamp(x, low, high)

    @staticmethod
    def reference(x, low, high):
        if low is not None:
            x = np.maximum(x, np.asarray(low).astype(x.dtype))
        return x if high is None else np.minimum(x, np.asarray(high).astype(x.dtype))

    @staticmethod
    def lower(b, x, low, high):
        return b.map(lambda s, v: s.clamp(v, low, high), x)
