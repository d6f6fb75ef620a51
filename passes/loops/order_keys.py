"""Maxima and minima of floats as maxima and minima of integers.

The bits of an f32, with those of negative numbers flipped below the sign, order like the numbers, and -0 below +0:

    -NaN ... -inf ... -1 ... -0 | +0 ... 1 ... inf ... NaN

NaN must win, as in torch. For a maximum the keys are moved down, modulo 2^32, until -inf is the least: the NaNs below
it come out on top. For a minimum they are moved up as far. An integer maximum is one instruction of one cycle, and
LLVM vectorises its reduction, while IEEE `maximum` takes a dozen.
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


def _move(b: LoopsBuilder, key: ir.Value, name: str) -> ir.Value:
    """Add or subtract (`name`) the number of NaNs of one sign."""
    nans = (1 << (52 if ir.IntegerType(_parts(key.type)[0]).width == 64 else 23)) - 1
    return b.value(name, (key, b.constant(nans, key.type)), key.type)


def to_key(b: LoopsBuilder, value: ir.Value, combine: str) -> ir.Value:
    """The integer that stands for `value` under `arith.maximumf` or `arith.minimumf`."""
    key = _flip(b, b.value("arith.bitcast", (value,), _key_type(value.type)))
    return _move(b, key, "arith.subi" if combine == "arith.maximumf" else "arith.addi")


def from_key(b: LoopsBuilder, key: ir.Value, type: ir.Type, combine: str) -> ir.Value:
    """The float of `type` that `key` stands for."""
    key = _move(b, key, "arith.addi" if combine == "arith.maximumf" else "arith.subi")
    return b.value("arith.bitcast", (_flip(b, key),), type)


def combine_keys(b: LoopsBuilder, combine: str, x: ir.Value, y: ir.Value) -> ir.Value:
    """The larger (smaller) of an accumulator, which is a key, and a float, in either order."""
    floats = is_orderable(x.type)
    key, value = (y, x) if floats else (x, y)
    name = "arith.maxsi" if combine == "arith.maximumf" else "arith.minsi"
    return b.value(name, (key, to_key(b, value, combine)), key.type)
