"""Arithmetic on f32 and i32 for math expansions: one set of calls for scalars and vectors of any length.

`MathBuilder(op)` writes before `op`; types follow the shape of `op`'s result. Constants are remembered per builder.
Comparisons with NaN are false (`lt` ...), as in `select(lt(x, 0), ...)`.
"""

from __future__ import annotations

from collections.abc import Sequence

from mlir import ir

from ..lane_types import number

Number = int | float
_PREDICATES = {"eq": 1, "gt": 2, "ge": 3, "lt": 4, "le": 5, "ne": 13, "uno": 14}
_INTEGER_PREDICATES = {"eq": 0, "ne": 1, "lt": 2, "le": 3, "gt": 4, "ge": 5, "ult": 6}


class MathBuilder:
    """Emit scalar or vector arithmetic before `op`."""

    def __init__(self, op: ir.Operation):
        self.ip = ir.InsertionPoint(op)
        self.location = op.location
        shape = op.results[0].type
        self.shape = list(shape.shape) if isinstance(shape, ir.VectorType) else None
        self.f32, self.i32 = self.like(ir.F32Type.get()), self.like(ir.IntegerType.get_signless(32))
        self.f64, self.i64 = self.like(ir.F64Type.get()), self.like(ir.IntegerType.get_signless(64))
        self.i1 = self.like(ir.IntegerType.get_signless(1))
        self._constants: dict[tuple[str, str], ir.Value] = {}

    def like(self, element: ir.Type) -> ir.Type:
        """The type of `element` with the shape that this builder works on."""
        return element if self.shape is None else ir.VectorType.get(self.shape, element)

    def op(self, name: str, operands: Sequence[ir.Value], type: ir.Type, **attributes: ir.Attribute) -> ir.Value:
        """One op with one result."""
        return ir.Operation.create(
            name, results=[type], operands=list(operands), attributes=attributes, loc=self.location, ip=self.ip
        ).results[0]

    # -- constants -------------------------------------------------------------------------------------------------
    def const(self, value: Number, type: ir.Type | None = None) -> ir.Value:
        """A constant; f32 by default."""
        type = type or self.f32
        key = (repr(value), str(type))
        if key not in self._constants:
            self._constants[key] = self.op("arith.constant", (), type, value=number(value, type, self.location))
        return self._constants[key]

    def value(self, x: ir.Value | Number, like: ir.Value | None = None) -> ir.Value:
        """`x`, or the constant of the type of `like`."""
        return x if isinstance(x, ir.Value) else self.const(x, like.type if like is not None else None)

    def _pair(self, a: ir.Value | Number, b: ir.Value | Number) -> tuple[ir.Value, ir.Value]:
        if isinstance(a, ir.Value):
            return a, self.value(b, a)
        return self.value(a, b if isinstance(b, ir.Value) else None), self.value(b)

    # -- floats ----------------------------------------------------------------------------------------------------
    def _float(self, name: str, a: ir.Value | Number, b: ir.Value | Number) -> ir.Value:
        x, y = self._pair(a, b)
        return self.op(name, (x, y), x.type)

    def add(self, a: ir.Value | Number, b: ir.Value | Number) -> ir.Value:
        return self._float("arith.addf", a, b)

    def sub(self, a: ir.Value | Number, b: ir.Value | Number) -> ir.Value:
        return self._float("arith.subf", a, b)

    def mul(self, a: ir.Value | Number, b: ir.Value | Number) -> ir.Value:
        return self._float("arith.mulf", a, b)

    def div(self, a: ir.Value | Number, b: ir.Value | Number) -> ir.Value:
        return self._float("arith.divf", a, b)

    def fma(self, a: ir.Value, b: ir.Value | Number, c: ir.Value | Number) -> ir.Value:
        """`a * b + c`, rounded once."""
        return self.op("math.fma", (a, self.value(b, a), self.value(c, a)), a.type)

    def neg(self, a: ir.Value) -> ir.Value:
        return self.op("arith.negf", (a,), a.type)

    def abs(self, a: ir.Value) -> ir.Value:
        return self.op("math.absf", (a,), a.type)

    def sqrt(self, a: ir.Value) -> ir.Value:
        return self.op("math.sqrt", (a,), a.type)

    def copysign(self, a: ir.Value, sign: ir.Value) -> ir.Value:
        return self.op("math.copysign", (a, sign), a.type)

    def round(self, a: ir.Value) -> ir.Value:
        """To the nearest integer, ties to even."""
        return self.op("math.roundeven", (a,), a.type)

    def polynomial(self, x: ir.Value, coefficients: Sequence[float]) -> ir.Value:
        """`c[0] + c[1] x + ...` by Horner's rule."""
        *rest, last = coefficients
        total = self.const(last, x.type)
        for c in reversed(rest):
            total = self.fma(total, x, c)
        return total

    # -- choice ----------------------------------------------------------------------------------------------------
    def compare(self, predicate: str, a: ir.Value, b: ir.Value | Number) -> ir.Value:
        """Compare floats (`eq gt ge lt le ne uno`)."""
        i64 = ir.IntegerType.get_signless(64)
        number = ir.IntegerAttr.get(i64, _PREDICATES[predicate])
        return self.op("arith.cmpf", (a, self.value(b, a)), self.i1, predicate=number)

    def compare_int(self, predicate: str, a: ir.Value, b: ir.Value | Number) -> ir.Value:
        """Compare integers (`eq ne lt le gt ge` signed, `ult`)."""
        i64 = ir.IntegerType.get_signless(64)
        number = ir.IntegerAttr.get(i64, _INTEGER_PREDICATES[predicate])
        return self.op("arith.cmpi", (a, self.value(b, a)), self.i1, predicate=number)

    def select(self, condition: ir.Value, a: ir.Value | Number, b: ir.Value | Number) -> ir.Value:
        x, y = self._pair(a, b)
        return self.op("arith.select", (condition, x, y), x.type)

    def clamp(self, x: ir.Value, low: float, high: float) -> ir.Value:
        """`x` limited to `low .. high`; NaN stays NaN."""
        x = self.select(self.compare("lt", x, low), low, x)
        return self.select(self.compare("gt", x, high), high, x)

    # -- integers and bits -----------------------------------------------------------------------------------------
    def integer(self, name: str, a: ir.Value, b: ir.Value | Number) -> ir.Value:
        """`arith.<name>` of integers."""
        return self.op("arith." + name, (a, self.value(b, a)), a.type)

    def to_float(self, a: ir.Value) -> ir.Value:
        """i32 to f32."""
        return self.op("arith.sitofp", (a,), self.f32)

    def bits(self, a: ir.Value) -> ir.Value:
        """The bits of an f32."""
        return self.op("arith.bitcast", (a,), self.i32)

    def from_bits(self, a: ir.Value) -> ir.Value:
        """The f32 with these bits."""
        return self.op("arith.bitcast", (a,), self.f32)
