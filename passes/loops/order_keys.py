"""Maxima and minima of floats as maxima and minima of integers.

The bits of an f32, with those of negative numbers flipped below the sign, order like the numbers, and -0 below +0.
NaN becomes the largest key (for a minimum: the smallest), so that it wins, as in torch. An integer maximum is one
instruction of one cycle, and LLVM vectorises its reduction, while IEEE `maximum` takes a dozen.
"""

from __future__ import annotations

from mlir import ir

from .loops_builder import LoopsBuilder


def _parts(type: ir.Type) -> tuple[ir.Type, list[int] | None]:
    return (
        (ir.VectorType(type).element_type, list(ir.VectorType(type).shape))
        if isinstance(type, ir.VectorType)
        else (type, None)
    )


def is_orderable(type: ir.Type) -> bool:
    """True for f32 and f64, scalar or vector."""
    return isinstance(_parts(type)[0], (ir.F32Type, ir.F64Type))


def _key_type(type: ir.Type) -> ir.Type:
    element, shape = _parts(type)
    integer = ir.IntegerType.get_signless(64 if isinstance(element, ir.F64Type) else 32)
    return integer if shape is None else ir.VectorType.get(shape, integer)


def _flip(b: LoopsBuilder, bits: ir.Value) -> ir.Value:
    """Flip the bits below the sign of negative numbers; its own inverse."""
    width = ir.IntegerType(_parts(bits.type)[0]).width
    sign = b.value("arith.shrsi", (bits, b.constant(width - 1, bits.type)), bits.type)
    mask = b.value("arith.andi", (sign, b.constant((1 << (width - 1)) - 1, bits.type)), bits.type)
    return b.value("arith.xori", (bits, mask), bits.type)


def to_key(b: LoopsBuilder, value: ir.Value, combine: str) -> ir.Value:
    """The integer that stands for `value` under `arith.maximumf` or `arith.minimumf`."""
    type = _key_type(value.type)
    key = _flip(b, b.value("arith.bitcast", (value,), type))
    width = ir.IntegerType(_parts(type)[0]).width
    top = (1 << (width - 1)) - 1
    wins = b.constant(top if combine == "arith.maximumf" else -top - 1, type)
    element, shape = _parts(value.type)
    i1 = b.i1 if shape is None else ir.VectorType.get(shape, b.i1)
    nan = b.value("arith.cmpf", (value, value), i1, predicate=b.number(14, b.i64))
    return b.value("arith.select", (nan, wins, key), type)


def from_key(b: LoopsBuilder, key: ir.Value, type: ir.Type) -> ir.Value:
    """The float of `type` that `key` stands for."""
    return b.value("arith.bitcast", (_flip(b, key),), type)


def combine_keys(b: LoopsBuilder, combine: str, x: ir.Value, y: ir.Value) -> ir.Value:
    """The larger (smaller) of an accumulator, which is a key, and a float, in either order."""
    floats = is_orderable(x.type)
    key, value = (y, x) if floats else (x, y)
    name = "arith.maxsi" if combine == "arith.maximumf" else "arith.minsi"
    return b.value(name, (key, to_key(b, value, combine)), key.type)
