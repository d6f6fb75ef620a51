"""Scalars in loop bodies: constants, arithmetic, comparisons and bit operations that know their dtype.

MLIR integers are signless, so the dtype of a `Scalar` decides between signed and unsigned forms. `bool` is `i1`.
f16, bf16 and floats of 8 bits are computed in f32 and rounded once per operation, as eager does. Integers wrap around.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from mlir import ir

from ...dialects import dtypes
from .ir_cache import IrCache, wrap

Number = bool | int | float


class Scalar(NamedTuple):
    """An SSA value in a loop body; `known` is its value if it is a constant."""

    value: Any
    dtype: str
    known: Number | None = None


# predicate numbers of arith.cmpi and arith.cmpf (ordered, except ne) by kind of dtype
_PREDICATES = {
    "int": {"eq": 0, "ne": 1, "lt": 2, "le": 3, "gt": 4, "ge": 5},
    "uint": {"eq": 0, "ne": 1, "lt": 6, "le": 7, "gt": 8, "ge": 9},
    "float": {"eq": 1, "gt": 2, "ge": 3, "lt": 4, "le": 5, "ne": 13, "uno": 14},
}


def kind(dtype: str) -> str:
    """ "float", "int" (also index) or "uint" (also bool)."""
    if dtype == "index":
        return "int"
    found = dtypes.DTYPES[dtype].kind
    return "uint" if found == "bool" else found


def is_narrow(dtype: str) -> bool:
    """True for the floats that are computed in f32."""
    return dtype != "index" and dtypes.is_float(dtype) and dtypes.size(dtype) < 4


def lowest(dtype: str) -> Number:
    """The smallest value: -inf, the most negative integer, False. The identity of max."""
    if dtype == "bool":
        return False
    if kind(dtype) == "float":
        return -math.inf
    return 0 if kind(dtype) == "uint" else -(1 << dtypes.bits(dtype) - 1)


def highest(dtype: str) -> Number:
    """The largest value: inf, the largest integer, True. The identity of min."""
    if dtype == "bool":
        return True
    if kind(dtype) == "float":
        return math.inf
    return (1 << dtypes.bits(dtype) - (kind(dtype) == "int")) - 1


class ScalarCore:
    """Emits scalar operations at `ip`, the end of a loop body."""

    def __init__(self, cache: IrCache, ip: ir.InsertionPoint, location: ir.Location):
        self.cache = cache
        self.ip = ip
        self.location = location
        self._constants: dict[tuple[str, str], Scalar] = {}

    def emit(self, name: str, operands: Sequence[Scalar], dtype: str, **attributes: ir.Attribute) -> Scalar:
        """Emit one op with one result of element type `dtype`."""
        op = ir.Operation.create(
            name,
            results=[self.cache.element(dtype)],
            operands=[o.value for o in operands],
            attributes=attributes,
            ip=self.ip,
            loc=self.location,
        )
        return Scalar(op.results[0], dtype)

    def const(self, value: Number, dtype: str) -> Scalar:
        """A constant, converted to `dtype` (integers wrap)."""
        key = (dtype, repr(value))
        found = self._constants.get(key)
        if found is None:
            made = self.emit("arith.constant", (), dtype, value=self.cache.number(value, dtype))
            found = self._constants[key] = Scalar(made.value, dtype, _rounded(value, dtype))
        return found

    def like(self, value: Scalar | Number, dtype: str) -> Scalar:
        """`value` itself, or the constant of `dtype` for a Python number."""
        return value if isinstance(value, Scalar) else self.const(value, dtype)

    def pair(self, a: Scalar | Number, b: Scalar | Number) -> tuple[Scalar, Scalar]:
        """Two scalars of one dtype; a Python number takes the other's."""
        dtype = a.dtype if isinstance(a, Scalar) else b.dtype if isinstance(b, Scalar) else None
        if dtype is None:
            raise TypeError(f"one of {a} and {b} must be a Scalar")
        a, b = self.like(a, dtype), self.like(b, dtype)
        if a.dtype != b.dtype:
            raise TypeError(f"scalars of different dtypes {a.dtype} and {b.dtype}; cast one")
        return a, b

    def wide(self, fn: Callable[..., Scalar], *xs: Scalar) -> Scalar:
        """`fn(*xs)` with narrow floats widened to f32 and the float result rounded back once."""
        dtype = next((x.dtype for x in xs if is_narrow(x.dtype)), None)
        if dtype is None:
            return fn(*xs)
        result = fn(*(self.extend(x) for x in xs))
        return self.round_to(result, dtype) if result.dtype == "f32" else result

    def extend(self, x: Scalar) -> Scalar:
        """Narrow floats to f32; anything else unchanged."""
        return self.emit("arith.extf", (x,), "f32") if is_narrow(x.dtype) else x

    def round_to(self, x: Scalar, dtype: str) -> Scalar:
        """f32 to a narrow float, to nearest even."""
        return self.emit("arith.truncf", (x,), dtype)

    def _binary(self, names: dict[str, str], a: Scalar | Number, b: Scalar | Number) -> Scalar:
        a, b = self.pair(a, b)
        name = names["bool" if a.dtype == "bool" and "bool" in names else kind(a.dtype)]
        return self.wide(lambda x, y: self.emit(name, (x, y), x.dtype), a, b)

    # -- arithmetic -------------------------------------------------------------------------------------------
    def add(self, a: Scalar | Number, b: Scalar | Number) -> Scalar:
        """`a + b` (bool: or)."""
        return self._binary(
            {"float": "arith.addf", "int": "arith.addi", "uint": "arith.addi", "bool": "arith.ori"}, a, b
        )

    def sub(self, a: Scalar | Number, b: Scalar | Number) -> Scalar:
        """`a - b` (bool: xor)."""
        return self._binary(
            {"float": "arith.subf", "int": "arith.subi", "uint": "arith.subi", "bool": "arith.xori"}, a, b
        )

    def mul(self, a: Scalar | Number, b: Scalar | Number) -> Scalar:
        """`a * b` (bool: and)."""
        return self._binary(
            {"float": "arith.mulf", "int": "arith.muli", "uint": "arith.muli", "bool": "arith.andi"}, a, b
        )

    def multiply_add(self, a: Scalar, b: Scalar, c: Scalar) -> Scalar:
        """`a * b + c` of f32 or f64, rounded once."""
        return self.emit("math.fma", (a, b, c), c.dtype)

    def maximum(self, a: Scalar | Number, b: Scalar | Number) -> Scalar:
        """The larger one; NaN if either is (torch.maximum)."""
        return self._binary({"float": "arith.maximumf", "int": "arith.maxsi", "uint": "arith.maxui"}, a, b)

    def minimum(self, a: Scalar | Number, b: Scalar | Number) -> Scalar:
        """The smaller one; NaN if either is (torch.minimum)."""
        return self._binary({"float": "arith.minimumf", "int": "arith.minsi", "uint": "arith.minui"}, a, b)

    def neg(self, x: Scalar) -> Scalar:
        """`-x`; integers wrap."""
        if kind(x.dtype) == "float":
            return self.wide(lambda v: self.emit("arith.negf", (v,), v.dtype), x)
        return self.sub(self.const(0, x.dtype), x)

    def abs(self, x: Scalar) -> Scalar:
        """`|x|`; the most negative integer stays."""
        match kind(x.dtype):
            case "float":
                return self.wide(lambda v: self.emit("math.absf", (v,), v.dtype), x)
            case "uint":
                return x
        return self.select(self.lt(x, 0), self.neg(x), x)

    # -- comparison and choice --------------------------------------------------------------------------------
    def compare(self, predicate: str, a: Scalar | Number, b: Scalar | Number) -> Scalar:
        """`eq ne lt le gt ge`, and `uno` (either is NaN); comparisons with NaN are false, `ne` true."""
        a, b = self.pair(a, b)
        a, b = self.extend(a), self.extend(b)
        number = self.cache.i64(_PREDICATES[kind(a.dtype)][predicate])
        return self.emit("arith.cmpf" if kind(a.dtype) == "float" else "arith.cmpi", (a, b), "bool", predicate=number)

    def eq(self, a: Scalar | Number, b: Scalar | Number) -> Scalar:
        return self.compare("eq", a, b)

    def ne(self, a: Scalar | Number, b: Scalar | Number) -> Scalar:
        return self.compare("ne", a, b)

    def lt(self, a: Scalar | Number, b: Scalar | Number) -> Scalar:
        return self.compare("lt", a, b)

    def le(self, a: Scalar | Number, b: Scalar | Number) -> Scalar:
        return self.compare("le", a, b)

    def gt(self, a: Scalar | Number, b: Scalar | Number) -> Scalar:
        return self.compare("gt", a, b)

    def ge(self, a: Scalar | Number, b: Scalar | Number) -> Scalar:
        return self.compare("ge", a, b)

    def select(self, condition: Scalar, a: Scalar | Number, b: Scalar | Number) -> Scalar:
        """`condition ? a : b`."""
        a, b = self.pair(a, b)
        return self.emit("arith.select", (condition, a, b), a.dtype)

    # -- bits -------------------------------------------------------------------------------------------------
    def bitwise_and(self, a: Scalar | Number, b: Scalar | Number) -> Scalar:
        a, b = self.pair(a, b)
        return self.emit("arith.andi", (a, b), a.dtype)

    def bitwise_or(self, a: Scalar | Number, b: Scalar | Number) -> Scalar:
        a, b = self.pair(a, b)
        return self.emit("arith.ori", (a, b), a.dtype)

    def bitwise_xor(self, a: Scalar | Number, b: Scalar | Number) -> Scalar:
        a, b = self.pair(a, b)
        return self.emit("arith.xori", (a, b), a.dtype)

    def bitwise_not(self, x: Scalar) -> Scalar:
        """All bits flipped (bool: logical not)."""
        return self.bitwise_xor(x, True if x.dtype == "bool" else -1)

    def truth(self, x: Scalar) -> Scalar:
        """`x != 0` (NaN is True)."""
        return x if x.dtype == "bool" else self.compare("ne", x, 0)

    def logical_and(self, a: Scalar, b: Scalar) -> Scalar:
        return self.bitwise_and(self.truth(a), self.truth(b))

    def logical_or(self, a: Scalar, b: Scalar) -> Scalar:
        return self.bitwise_or(self.truth(a), self.truth(b))

    def logical_xor(self, a: Scalar, b: Scalar) -> Scalar:
        return self.bitwise_xor(self.truth(a), self.truth(b))

    def shift_left(self, a: Scalar | Number, b: Scalar | Number) -> Scalar:
        """`a << b`; 0 where `b` is negative or not less than the width."""
        a, b = self.pair(a, b)
        inside, amount = self._shift_amount(b, dtypes.bits(a.dtype))
        return self.select(inside, self.emit("arith.shli", (a, amount), a.dtype), 0)

    def shift_right(self, a: Scalar | Number, b: Scalar | Number) -> Scalar:
        """`a >> b`, arithmetic if signed; an amount outside the width leaves only sign bits."""
        a, b = self.pair(a, b)
        bits = dtypes.bits(a.dtype)
        inside, amount = self._shift_amount(b, bits)
        if kind(a.dtype) == "uint":
            return self.select(inside, self.emit("arith.shrui", (a, amount), a.dtype), 0)
        return self.emit("arith.shrsi", (a, self.select(inside, amount, bits - 1)), a.dtype)

    def _shift_amount(self, b: Scalar, bits: int) -> tuple[Scalar, Scalar]:
        inside = self.emit("arith.cmpi", (b, self.const(bits, b.dtype)), "bool", predicate=self.cache.i64(6))
        return inside, self.select(inside, b, 0)  # unsigned compare: negative amounts are outside too


def _rounded(value: Number, dtype: str) -> Number:
    if dtype == "bool":
        return bool(value)
    if kind(dtype) == "float":
        return float(value)
    bits = 64 if dtype == "index" else dtypes.bits(dtype)
    return int(value) & (1 << bits) - 1 if kind(dtype) == "uint" else wrap(int(value), bits)
