"""Tensors from attributes and indices alone: `full`, `constant`, `iota`, `size_value`."""

from __future__ import annotations

import base64
import math

from ..dims import Dim, product
from ..dtypes import DTYPES, is_float, size
from ..lazy import np, pt
from ..op import Attr, Dims, DTypeAttr, Literal, Op, Result, Scalar, check, sample
from ..record import TensorType


def _dtype(dtype: str) -> None:
    check(dtype in DTYPES, f"'{dtype}' is not a dtype; they are {', '.join(DTYPES)}")


def _torch_dtype(dtype: str):
    return getattr(pt, DTYPES[dtype].torch)


class Full(Op, name="full", category="creation"):
    """A tensor of `shape` filled with `value`."""

    shape: Attr[Dims]
    value: Attr[Scalar]
    dtype: Attr[DTypeAttr]
    y: Result

    samples = (
        sample(shape=(2, 3), value=1.5, dtype="f32"),
        sample(shape=(), value=-math.inf, dtype="bf16"),
        sample(shape=(4,), value=200, dtype="u8"),
        sample(shape=(0, 2), value=True, dtype="bool"),
    )

    @staticmethod
    def infer(shape, value, dtype):
        _dtype(dtype)
        check(is_float(dtype) or math.isfinite(value), f"{value} as {dtype}")
        return TensorType(dtype, shape)

    @staticmethod
    def torch(shape, value, dtype):
        return pt.full(shape, value, dtype=_torch_dtype(dtype))

    @staticmethod
    def reference(shape, value, dtype):
        from ..interpret import numpy_dtype

        return np.full(shape, np.asarray(value).astype(numpy_dtype(dtype)))

    @staticmethod
    def lower(b, shape, value, dtype):
        return b.fill(shape, value, dtype)


class Constant(Op, name="constant", category="creation"):
    """A literal tensor: `data` is its elements, row-major and little-endian, in base64."""

    dtype: Attr[DTypeAttr]
    shape: Attr[Dims]
    data: Attr[Literal]
    y: Result

    samples = (
        sample(dtype="f32", shape=(3,), data="AACAPwAAAEAAAEBA"),
        sample(dtype="bool", shape=(3,), data="AQAB"),
        sample(dtype="i64", shape=(), data="/////////38="),
    )

    @staticmethod
    def infer(dtype, shape, data):
        _dtype(dtype)
        check(all(isinstance(d, int) for d in shape), "a literal's shape is static")
        have, want = len(base64.b64decode(data)), product(shape) * size(dtype)
        check(have == want, f"{have} bytes of data for {TensorType(dtype, shape)}, which takes {want}")
        return TensorType(dtype, shape)

    @staticmethod
    def torch(dtype, shape, data):
        raw = bytearray(base64.b64decode(data))
        return pt.frombuffer(raw, dtype=_torch_dtype(dtype)).reshape(shape)

    @staticmethod
    def reference(dtype, shape, data):
        from ..interpret import numpy_dtype

        return np.frombuffer(base64.b64decode(data), numpy_dtype(dtype)).reshape(shape)

    @staticmethod
    def lower(b, dtype, shape, data):
        return b.literal(base64.b64decode(data), dtype, shape)


class Iota(Op, name="iota", category="creation"):
    """`start + i step` for `i` in `0 .. size - 1` (`size` is a tuple of one); floats are computed in f64."""

    size: Attr[Dims]
    start: Attr[Scalar] = 0
    step: Attr[Scalar] = 1
    dtype: Attr[DTypeAttr] = "i64"
    y: Result

    samples = (
        sample(size=(5,)),
        sample(size=(4,), start=10, step=-3, dtype="i32"),
        sample(size=(6,), start=0.5, step=0.25, dtype="f32"),
        sample(size=(0,), start=1, step=2, dtype="f64"),
    )

    @staticmethod
    def infer(size, start, step, dtype):
        _dtype(dtype)
        check(len(size) == 1, f"size is one size, got {len(size)}")
        check(is_float(dtype) or not isinstance(start, float), f"a float start of {dtype}")
        return TensorType(dtype, size)

    @staticmethod
    def torch(size, start, step, dtype):
        end = start + size[0] * step
        return pt.arange(start, end, step, dtype=_torch_dtype(dtype))

    @staticmethod
    def reference(size, start, step, dtype):
        from ..interpret import numpy_dtype

        return (start + np.arange(size[0]) * step).astype(numpy_dtype(dtype))

    @staticmethod
    def lower(b, size, start, step, dtype):
        wide = "f64" if is_float(dtype) else "i64"

        def body(s, index):
            return s.cast(s.add(s.mul(s.cast(index[0], wide), step), s.const(start, wide)), dtype)

        return b.generate(size, dtype, body)


class SizeValue(Op, name="size_value", category="creation"):
    """A symbolic size as a 0-d i64 tensor; `dim` is a tuple of one."""

    dim: Attr[Dims]
    y: Result

    samples = (sample(dim=(7,)),)

    @staticmethod
    def infer(dim):
        check(len(dim) == 1, f"dim is one size, got {len(dim)}")
        return TensorType("i64", ())

    @staticmethod
    def torch(dim):
        return pt.tensor(dim[0])

    @staticmethod
    def reference(dim):
        return np.asarray(dim[0], np.int64)

    @staticmethod
    def lower(b, dim: tuple[Dim, ...]):
        return b.generate((), "i64", lambda s, index: s.cast(s.size(dim[0]), "i64"))
