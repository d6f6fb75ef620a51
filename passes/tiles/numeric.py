"""Element arithmetic of the tile emitters, for scalars and vectors alike: which type computes, and how values convert.

f16 and bf16 compute in f32 and round once at the end, as eager does; i8, i16 and i32 compute in i32 (arithmetic modulo
2^n commutes with truncation), i64 in i64; unsigned types share their signed twin, since only the low bits are kept.
"""

from __future__ import annotations

from mlir import ir

from ...dialects.dtypes import DTYPES
from ..lane_types import element_of, like
from ..loops.op_builder import comparison
from .code import Code


def compute_dtype(dtype: str) -> str:
    """The dtype in which products of `dtype` are summed."""
    kind, size = DTYPES[dtype].kind, DTYPES[dtype].bytes
    if kind == "float":
        return "f64" if size == 8 else "f32"
    return "i64" if size == 8 else "i32"


def element_type(dtype: str) -> ir.Type:
    """The signless MLIR type in which `dtype` is stored (bool: i8)."""
    if DTYPES[dtype].kind == "float":
        return ir.Type.parse(dtype)
    return ir.IntegerType.get_signless(8 * DTYPES[dtype].bytes)


def convert(code: Code, value: ir.Value, source: str, target: str) -> ir.Value:
    """`value` of dtype `source` as dtype `target`; floats to floats and ints to ints, rounding to nearest even."""
    old, new = DTYPES[source], DTYPES[target]
    if element_type(source) == element_type(target):
        return value
    if (old.kind == "float") != (new.kind == "float"):
        raise ValueError(f"no conversion from {source} to {target} inside a tile")
    kind = like(value.type, element_type(target))
    if old.kind == "float":
        return code.op("arith.extf" if new.bytes > old.bytes else "arith.truncf", [kind], [value])
    if new.bytes < old.bytes:
        return code.op("arith.trunci", [kind], [value])
    return code.op("arith.extsi" if old.kind == "int" else "arith.extui", [kind], [value])


def multiply_add(code: Code, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
    """`a * b + c`, fused for floats."""
    if _is_float(c):
        return code.op("vector.fma" if isinstance(c.type, ir.VectorType) else "math.fma", [c.type], [a, b, c])
    return code.op("arith.addi", [c.type], [code.op("arith.muli", [c.type], [a, b]), c])


def compare(code: Code, predicate: str, a: ir.Value, b: ir.Value) -> ir.Value:
    """Whether `a predicate b`, lane by lane: a name of `arith.cmpi`, of floats one of `arith.cmpf`."""
    name, result, number = comparison(predicate, a.type)
    return code.op(name, [result], [a, b], predicate=number)


def add(code: Code, a: ir.Value, b: ir.Value) -> ir.Value:
    """`a + b`."""
    return code.op("arith.addf" if _is_float(a) else "arith.addi", [a.type], [a, b])


def broadcast(code: Code, scalar: ir.Value, width: int) -> ir.Value:
    """A vector with `scalar` in every lane."""
    return code.op("vector.broadcast", [ir.VectorType.get([width], scalar.type)], [scalar])


def spread(code: Code, value: ir.Value, width: int) -> ir.Value:
    """`value` itself if it is a vector or `width` is 1, else `width` copies of it."""
    return value if width == 1 or isinstance(value.type, ir.VectorType) else broadcast(code, value, width)


def _is_float(value: ir.Value) -> bool:
    return isinstance(element_of(value.type), ir.FloatType)
