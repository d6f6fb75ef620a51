"""Conversion between dtypes with eager's results on x86-64, also where C leaves them undefined.

float -> bool   x != 0 (NaN is True)
float -> int    truncation; i8, i16, u8, u16 go through i32 and wrap, u32 through i64 (-1.5 -> u8 is 255)
f64 -> f16      through f32, two roundings, as c10::Half does; so to bf16 and f8…
"""

from __future__ import annotations

from ...dialects import dtypes
from .scalar_core import Scalar, ScalarCore, is_narrow, kind


class ScalarCast(ScalarCore):
    """Adds `cast`."""

    def cast(self, x: Scalar, dtype: str) -> Scalar:
        """`x` as `dtype` (`index` included)."""
        if x.dtype == dtype:
            return x
        # not what `math/float8.py` defines where a float of 8 bits is too small for the value
        folds = dtype not in dtypes.FLOAT8 and not (kind(x.dtype) == "float" and kind(dtype) != "float")
        if x.known is not None and folds:
            return self.const(x.known, dtype)
        if "index" in (x.dtype, dtype):
            return self._cast_index(x, dtype)
        if dtype == "bool":
            return self.ne(x, 0)
        if kind(x.dtype) == "float":
            return (
                self._float_to_float(x, dtype) if dtypes.is_float(dtype) else self._float_to_int(self.extend(x), dtype)
            )
        return self._int_to_float(x, dtype) if dtypes.is_float(dtype) else self._int_to_int(x, dtype)

    def _cast_index(self, x: Scalar, dtype: str) -> Scalar:
        if x.dtype != "index":
            unsigned = kind(x.dtype) == "uint"
            return self.emit("arith.index_castui" if unsigned else "arith.index_cast", (x,), "index")
        return self.cast(self.emit("arith.index_cast", (x,), "i64"), dtype)

    def _float_to_float(self, x: Scalar, dtype: str) -> Scalar:
        if is_narrow(dtype):
            return self.round_to(self._float_to_float(x, "f32") if x.dtype != "f32" else x, dtype)
        x = self.extend(x)
        if x.dtype == dtype:
            return x
        return self.emit("arith.extf" if dtype == "f64" else "arith.truncf", (x,), dtype)

    def _float_to_int(self, x: Scalar, dtype: str) -> Scalar:
        if dtype == "u64":
            return self._float_to_u64(x)
        via = "i64" if dtype in ("i64", "u32") else "i32"
        return self.cast(self.emit("arith.fptosi", (x,), via), dtype)

    def _float_to_u64(self, x: Scalar) -> Scalar:
        """What compilers emit without AVX-512: the upper half is moved down by 2^63 and its top bit set."""
        half = self.const(2.0**63, x.dtype)
        low = self.emit("arith.fptosi", (x,), "u64")
        high = self.emit("arith.fptosi", (self.sub(x, half),), "u64")
        return self.select(self.lt(x, half), low, self.bitwise_xor(high, 1 << 63))

    def _int_to_float(self, x: Scalar, dtype: str) -> Scalar:
        if x.dtype == "bool" and is_narrow(dtype):
            return self.select(x, self.const(1, dtype), self.const(0, dtype))
        target = "f32" if is_narrow(dtype) else dtype
        made = self.emit("arith.uitofp" if kind(x.dtype) == "uint" else "arith.sitofp", (x,), target)
        return self.round_to(made, dtype) if is_narrow(dtype) else made

    def _int_to_int(self, x: Scalar, dtype: str) -> Scalar:
        have, want = (1 if d == "bool" else dtypes.bits(d) for d in (x.dtype, dtype))
        if have == want:
            return Scalar(x.value, dtype)
        if have > want:
            return self.emit("arith.trunci", (x,), dtype)
        return self.emit("arith.extui" if kind(x.dtype) == "uint" else "arith.extsi", (x,), dtype)
