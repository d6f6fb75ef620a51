"""Conversion between dtypes."""

from __future__ import annotations

import math

from ..dtypes import DTYPES
from ..lazy import np, pt
from ..op import Attr, DTypeAttr, Op, Operand, Result, check, sample
from ..record import TensorType


def _wrapping_floats(rng):
    return np.array([-1.5, -2.9, 0.3, 1.7, 250.2, -0.1, -100.0, 7.9, 300.0, -300.5, 65536.25], np.float32)


def _halves(rng):
    return np.array([1.00390625, 1.01171875, 65519.0, 65520.0, 1e-8, 3e-8, math.nan, -math.inf, -0.0], np.float64)


class Cast(Op, name="cast", category="pointwise"):
    """`x` as `dtype`: floats round to nearest even, to integers truncate and wrap; anything but 0 is True."""

    x: Operand
    dtype: Attr[DTypeAttr]
    y: Result

    samples = (
        *(sample((7,), low=0, high=100, dtype=d) for d in DTYPES),
        *(sample(("i64", (7,)), low=-100, high=100, dtype=d) for d in DTYPES),
        *(sample(_wrapping_floats, dtype=d) for d in ("u8", "i8", "i16", "u16", "i32", "u32", "i64")),
        *(sample(_halves, dtype=d) for d in ("f16", "bf16", "f32")),
        *(sample(("bool", (4,)), dtype=d) for d in ("f32", "i8", "u8", "i64", "bf16")),
        *(sample(("u8", (7,)), low=0, high=255, dtype=d) for d in ("f32", "i8", "i64", "f64", "bool")),
        *(sample(("bf16", (7,)), dtype=d) for d in ("f32", "f16", "i32", "bool", "f64")),
        *(sample(("f16", (7,)), dtype=d) for d in ("f32", "bf16", "u8")),
        sample(lambda rng: np.array([0.0, -0.0, math.nan, 0.1], np.float32), dtype="bool"),
        sample(lambda rng: np.array([2**63 + 2**40, 5], np.uint64), dtype="f32"),
    )

    @staticmethod
    def infer(x, dtype):
        check(dtype in DTYPES, f"'{dtype}' is not a dtype; they are {', '.join(DTYPES)}")
        return TensorType(dtype, x.shape)

    @staticmethod
    def torch(x, dtype):
        return x.to(getattr(pt, DTYPES[dtype].torch))

    @staticmethod
    def reference(x, dtype):
        from ..interpret import numpy_dtype

        target = numpy_dtype(dtype)
        with np.errstate(all="ignore"):
            if x.dtype.kind in "fV" and DTYPES[dtype].kind in ("int", "uint"):
                return x.astype(np.float64).astype(np.int64).astype(target)
            if dtype in ("f16", "bf16"):
                return x.astype(np.float32).astype(target)  # eager rounds twice too
            return x.astype(target)

    @staticmethod
    def lower(b, x, dtype):
        return b.cast(x, dtype)
