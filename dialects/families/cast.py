"""Conversion between dtypes."""

from __future__ import annotations

import math

from ..dtypes import DTYPES, FLOAT8
from ..lazy import np, pt
from ..op import Attr, DTypeAttr, Op, Operand, Result, check, sample
from ..record import TensorType


def _wrapping_floats(rng):
    return np.array([-1.5, -2.9, 0.3, 1.7, 250.2, -0.1, -100.0, 7.9, 300.0, -300.5, 65536.25], np.float32)


def _halves(rng):
    return np.array([1.00390625, 1.01171875, 65519.0, 65520.0, 1e-8, 3e-8, math.nan, -math.inf, -0.0], np.float64)


def _overflows(rng):
    """The largest values of floats of 8 bits, the ties above them, and what lies around the smallest."""
    large = np.array([240, 248, 448, 464, 480, 57344, 61440, 65536, math.inf, math.nan], np.float32)
    small = np.array([2**-9, 2**-10, 2**-11, 1.5 * 2**-16, 2**-17, 2**-18, 0], np.float32)
    both = np.concatenate([large, np.nextafter(large, np.float32(0)), small, np.nextafter(small, np.float32(1))])
    return np.concatenate([both, -both])


class Cast(Op, name="cast", category="pointwise"):
    """`x` as `dtype`: floats round to nearest even, to integers truncate and wrap; anything but 0 is True.

    What is too large is infinite, or NaN where `dtype` has no infinity; but `f8E4M3FN` saturates: it is +-448.
    """

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
        *(sample(_overflows, dtype=d) for d in FLOAT8),
        *(
            sample((d, (9,)), low=-20, high=20, dtype=e)
            for d in FLOAT8
            for e in ("f32", "bf16", "i32", "bool", *FLOAT8)
        ),
        *(sample(("bf16", (9,)), low=-500, high=500, dtype=d) for d in FLOAT8),
        sample(lambda rng: np.array([0.0, -0.0, math.nan, 0.1], np.float32), dtype="bool"),
        sample(lambda rng: np.array([2**63 + 2**40, 5], np.uint64), dtype="f32"),
    )

    @staticmethod
    def infer(x, dtype):
        check(dtype in DTYPES, f"'{dtype}' is not a dtype; they are {', '.join(DTYPES)}")
        return TensorType(dtype, x.shape)

    @staticmethod
    def torch(x, dtype):
        if dtype == "f8E4M3FN":
            x = x.float().clamp(-448, 448)  # torch before 2.13 makes NaN of what is larger, and the frontend says so
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
            if dtype in FLOAT8:
                wide = x.astype(np.float32)
                return (np.clip(wide, -448, 448) if dtype == "f8E4M3FN" else wide).astype(target)
            return x.astype(target)

    @staticmethod
    def lower(b, x, dtype):
        return b.cast(x, dtype)
