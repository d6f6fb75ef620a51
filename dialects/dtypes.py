"""Element types: names, sizes, kinds and torch's promotion rules, without importing numpy, torch or MLIR.

A dtype is its name, a string: `f32 f64 f16 bf16 i8 i16 i32 i64 u8 u16 u32 u64 bool`, and the floats of 8 bits, which are
named as MLIR and the OCP and IEEE P3109 papers do, by the bits of exponent and mantissa:

| dtype | largest | smallest | infinity | NaN |
|---|---|---|---|---|
| `f8E4M3FN` | 448 | 2^-9 | none | 0x7F, 0xFF |
| `f8E5M2` | 57344 | 2^-16 | as IEEE | as IEEE |
| `f8E4M3FNUZ` | 240 | 2^-10 | none | 0x80; no -0 |
| `f8E5M2FNUZ` | 57344 | 2^-17 | none | 0x80; no -0 |
"""

from __future__ import annotations

from typing import NamedTuple


class DType(NamedTuple):
    """Facts of one element type; `mlir` is its spelling in our dialect, `numpy` numpy's (ml_dtypes' for bf16 and f8…)."""

    name: str
    kind: str  # "float", "int", "uint" or "bool"
    bytes: int
    mlir: str
    numpy: str
    torch: str


DTYPES = {
    d.name: d
    for d in (
        DType("f64", "float", 8, "f64", "float64", "float64"),
        DType("f32", "float", 4, "f32", "float32", "float32"),
        DType("f16", "float", 2, "f16", "float16", "float16"),
        DType("bf16", "float", 2, "bf16", "bfloat16", "bfloat16"),
        DType("f8E4M3FN", "float", 1, "f8E4M3FN", "float8_e4m3fn", "float8_e4m3fn"),
        DType("f8E5M2", "float", 1, "f8E5M2", "float8_e5m2", "float8_e5m2"),
        DType("f8E4M3FNUZ", "float", 1, "f8E4M3FNUZ", "float8_e4m3fnuz", "float8_e4m3fnuz"),
        DType("f8E5M2FNUZ", "float", 1, "f8E5M2FNUZ", "float8_e5m2fnuz", "float8_e5m2fnuz"),
        DType("i64", "int", 8, "i64", "int64", "int64"),
        DType("i32", "int", 4, "i32", "int32", "int32"),
        DType("i16", "int", 2, "i16", "int16", "int16"),
        DType("i8", "int", 1, "i8", "int8", "int8"),
        DType("u64", "uint", 8, "ui64", "uint64", "uint64"),
        DType("u32", "uint", 4, "ui32", "uint32", "uint32"),
        DType("u16", "uint", 2, "ui16", "uint16", "uint16"),
        DType("u8", "uint", 1, "ui8", "uint8", "uint8"),
        DType("bool", "bool", 1, "i1", "bool", "bool"),
    )
}
FROM_MLIR = {d.mlir: d.name for d in DTYPES.values()}
FROM_TORCH = {d.torch: d.name for d in DTYPES.values()}
FLOAT8 = tuple(name for name, d in DTYPES.items() if d.kind == "float" and d.bytes == 1)


def is_float(dtype: str) -> bool:
    """True for f8…, f16, bf16, f32 and f64."""
    return DTYPES[dtype].kind == "float"


def is_int(dtype: str) -> bool:
    """True for signed and unsigned integers, not for bool."""
    return DTYPES[dtype].kind in ("int", "uint")


def size(dtype: str) -> int:
    """Bytes of one element in memory (bool: 1)."""
    return DTYPES[dtype].bytes


def bits(dtype: str) -> int:
    """Bits of one element in memory."""
    return 8 * size(dtype)


def promote(a: str, b: str) -> str:
    """torch.promote_types of two dtypes of the same rank of category."""
    if a == b:
        return a
    x, y = DTYPES[a], DTYPES[b]
    order = {"bool": 0, "uint": 1, "int": 1, "float": 2}
    if order[x.kind] != order[y.kind]:
        return a if order[x.kind] > order[y.kind] else b
    if x.kind == "float":
        return "f32" if x.bytes == y.bytes else (a if x.bytes > y.bytes else b)
    if x.kind == y.kind:
        return a if x.bytes > y.bytes else b
    signed, unsigned = (x, y) if x.kind == "int" else (y, x)
    if signed.bytes > unsigned.bytes:
        return signed.name
    return f"i{min(64, 16 * unsigned.bytes)}"
