"""Maxima and minima of floats as those of integers.

An integer maximum is one instruction of one cycle, and LLVM vectorises its reduction, while IEEE `maximum` takes a
dozen. NaN must win, as in torch. An accumulator is a *key*, of one of two forms.

Of single f32s, three extremes of their bits: as signed integers the greatest and the least, as unsigned the greatest.

    signed:    -0 ... -1 ... -inf ... -NaN | +0 ... 1 ... inf ... NaN       unsigned: the same with the halves exchanged

    maximum    a -NaN that is the greatest unsigned; else the greatest if it has no sign; else the least
    minimum    a NaN that is the greatest signed; else the greatest unsigned if it has a sign; else the least

Of vectors (three would take all registers) and of f64, one integer: the bits, with those of negative numbers flipped below the
sign, order like the numbers. For a maximum they are moved down, modulo 2^32, until -inf is the least: the NaNs below it
come out on top. For a minimum they are moved up as far.
"""

from __future__ import annotations

from collections.abc import Sequence

from mlir import ir

from ..lane_types import element_of, like
from .loops_builder import LoopsBuilder

Key = ir.Value | tuple[ir.Value, ...]
_INFINITY = 0x7F800000


def is_orderable(type: ir.Type) -> bool:
    """True for f32 and f64, scalar or vector."""
    return isinstance(element_of(type), (ir.F32Type, ir.F64Type))


def float_bits(b: LoopsBuilder, value: ir.Value) -> ir.Value:
    """The bits of a float, or of each of a vector, as an integer."""
    integer = ir.IntegerType.get_signless(64 if isinstance(element_of(value.type), ir.F64Type) else 32)
    return b.value("arith.bitcast", (value,), like(value.type, integer))


# -- one integer ------------------------------------------------------------------------------------------------------
def flip(b: LoopsBuilder, bits: ir.Value) -> ir.Value:
    """Flip the bits below the sign of negative numbers, which orders them as signed integers; its own inverse."""
    width = ir.IntegerType(element_of(bits.type)).width
    sign = b.value("arith.shrsi", (bits, b.constant(width - 1, bits.type)), bits.type)
    mask = b.value("arith.andi", (sign, b.constant((1 << (width - 1)) - 1, bits.type)), bits.type)
    return b.value("arith.xori", (bits, mask), bits.type)


def _move(b: LoopsBuilder, key: ir.Value, name: str) -> ir.Value:
    """Add or subtract (`name`) the number of NaNs of one sign."""
    nans = (1 << (52 if ir.IntegerType(element_of(key.type)).width == 64 else 23)) - 1
    return b.value(name, (key, b.constant(nans, key.type)), key.type)


def _ordered(b: LoopsBuilder, value: ir.Value, combine: str) -> ir.Value:
    return _move(b, flip(b, float_bits(b, value)), "arith.subi" if combine == "arith.maximumf" else "arith.addi")


# -- three extremes ---------------------------------------------------------------------------------------------------
def _from_extremes(b: LoopsBuilder, key: tuple[ir.Value, ...], type: ir.Type, combine: str) -> ir.Value:
    greatest, least, unsigned = key

    def choose(predicate: str, x: ir.Value, bound: int, then: ir.Value, otherwise: ir.Value) -> ir.Value:
        holds = b.compare(predicate, x, b.constant(bound, b.i32))
        return b.select(holds, then, otherwise)

    if combine == "arith.maximumf":
        found = choose("sgt", greatest, -1, greatest, least)
        found = choose("ugt", unsigned, _INFINITY | 1 << 31, unsigned, found)
    else:
        found = choose("slt", unsigned, 0, unsigned, least)
        found = choose("sgt", greatest, _INFINITY, greatest, found)
    return b.value("arith.bitcast", (found,), type)


# -- keys -------------------------------------------------------------------------------------------------------------
def to_key(b: LoopsBuilder, value: ir.Value, combine: str) -> Key:
    """The key of `value` alone, under `arith.maximumf` or `arith.minimumf`."""
    return (float_bits(b, value),) * 3 if value.type == b.f32 else _ordered(b, value, combine)


def from_key(b: LoopsBuilder, key: Key, type: ir.Type, combine: str) -> ir.Value:
    """The float of `type` that `key` stands for."""
    if isinstance(key, tuple):
        return _from_extremes(b, key, type, combine)
    key = _move(b, key, "arith.addi" if combine == "arith.maximumf" else "arith.subi")
    return b.value("arith.bitcast", (flip(b, key),), type)


def combine_keys(b: LoopsBuilder, combine: str, x: Key, y: Key) -> Key:
    """The key of an accumulator, which is a key, and a float, in either order."""
    first_is_key = isinstance(x, tuple) or not (isinstance(y, tuple) or is_orderable(x.type))
    key, value = (x, y) if first_is_key else (y, x)
    assert isinstance(value, ir.Value)
    if isinstance(key, tuple):
        bits, names = float_bits(b, value), ("arith.maxsi", "arith.minsi", "arith.maxui")
        return tuple(b.value(name, (k, bits), b.i32) for name, k in zip(names, key))
    name = "arith.maxsi" if combine == "arith.maximumf" else "arith.minsi"
    return b.value(name, (key, _ordered(b, value, combine)), key.type)


def flat(keys: Sequence[Key]) -> list[ir.Value]:
    """The values of all keys, one after the other."""
    return [value for key in keys for value in (key if isinstance(key, tuple) else (key,))]


def unflat(values: Sequence[ir.Value], like: Sequence[Key]) -> list[Key]:
    """The keys whose values are `values`; those `like` them say how many each has."""
    rest = iter(values)
    return [tuple(next(rest) for _ in key) if isinstance(key, tuple) else next(rest) for key in like]
