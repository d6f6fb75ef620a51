"""What formulas are written with: values whose operators emit LLVM instructions, polynomials, and long constants."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

# Numbers in two or three parts whose sum has 100 or 150 bits.
LN2 = (0.6931471805599453, 2.3190468138462996e-17)
HALF_PI = (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33)
TWO_THIRDS = (0.6666666666666666, 3.700743415417188e-17)
INF, NAN = math.inf, math.nan


class Value:
    """A value in an LLVM function being written: a double, an i64 or the i1 of a comparison."""

    def __init__(self, lines: list[str], text: str):
        self.lines, self.text = lines, text

    def emit(self, text: str) -> Value:
        """Append an instruction; `text` is its right side."""
        name = f"%t{len(self.lines)}"
        self.lines.append(f"{name} = {text}")
        return Value(self.lines, name)

    def _binary(self, op: str, other: Value | float, swapped: bool = False) -> Value:
        a, b = (_text(other), self.text) if swapped else (self.text, _text(other))
        return self.emit(f"{op} double {a}, {b}")

    def __add__(self, other: Value | float) -> Value:
        return self._binary("fadd", other)

    def __sub__(self, other: Value | float) -> Value:
        return self._binary("fsub", other)

    def __mul__(self, other: Value | float) -> Value:
        return self._binary("fmul", other)

    def __truediv__(self, other: Value | float) -> Value:
        return self._binary("fdiv", other)

    def __radd__(self, other: float) -> Value:
        return self._binary("fadd", other)

    def __rsub__(self, other: float) -> Value:
        return self._binary("fsub", other, swapped=True)

    def __rmul__(self, other: float) -> Value:
        return self._binary("fmul", other)

    def __rtruediv__(self, other: float) -> Value:
        return self._binary("fdiv", other, swapped=True)

    def __neg__(self) -> Value:
        return self.emit(f"fneg double {self.text}")

    def compare(self, predicate: str, other: Value | float) -> Value:
        """`fcmp`; `predicate` is LLVM's, such as "olt"."""
        return self.emit(f"fcmp {predicate} double {self.text}, {_text(other)}")

    def both(self, other: Value) -> Value:
        return self.emit(f"and i1 {self.text}, {other.text}")

    def either(self, other: Value) -> Value:
        return self.emit(f"or i1 {self.text}, {other.text}")

    def choose(self, a: Value | float, b: Value | float) -> Value:
        """`self ? a : b`."""
        return self.emit(f"select i1 {self.text}, double {_text(a)}, double {_text(b)}")

    def intrinsic(self, name: str, *others: Value | float) -> Value:
        given = ", ".join(f"double {_text(v)}" for v in (self, *others))
        return self.emit(f"call double @llvm.{name}.f64({given})")

    def fma(self, b: Value | float, c: Value | float) -> Value:
        """`self * b + c`, rounded once."""
        return self.intrinsic("fma", b, c)

    def integer(self) -> Value:
        """A whole number as an i64; saturates, NaN is 0."""
        return self.emit(f"call i64 @llvm.fptosi.sat.i64.f64(double {self.text})")

    def bits(self) -> Value:
        return self.emit(f"bitcast double {self.text} to i64")

    def i64(self, op: str, other: Value | int) -> Value:
        """Arithmetic on an i64."""
        return self.emit(f"{op} i64 {self.text}, {other.text if isinstance(other, Value) else other}")

    def test(self, predicate: str, other: int) -> Value:
        return self.emit(f"icmp {predicate} i64 {self.text}, {other}")

    def double(self) -> Value:
        """An i64 as a number."""
        return self.emit(f"sitofp i64 {self.text} to double")

    def as_double(self) -> Value:
        """An i64 as the bits of a double."""
        return self.emit(f"bitcast i64 {self.text} to double")


def constant(x: float) -> str:
    """A double as LLVM writes it."""
    return f"0x{struct.unpack('<Q', struct.pack('<d', x))[0]:016X}"


def _text(x: Value | float) -> str:
    return x.text if isinstance(x, Value) else constant(x)


def polynomial(x: Value, coefficients: Sequence[float]) -> Value:
    """Horner's scheme, highest power first; at least two coefficients."""
    value: Value | float = coefficients[0]
    for c in coefficients[1:]:
        value = x.fma(value, c)
    assert isinstance(value, Value)
    return value
