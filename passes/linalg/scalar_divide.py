"""Division, remainder and power with the results of torch, for integers and floats.

Integer division by zero is a run-time check (eager raises); the most negative integer divided by -1 wraps.
"""

from __future__ import annotations

from ...dialects import dtypes
from ...dialects.status import DIVISION_BY_ZERO
from .scalar_cast import ScalarCast
from .scalar_core import Number, Scalar, kind


class ScalarDivide(ScalarCast):
    """Adds `div`, `remainder`, `fmod`, `pow`, and `check`."""

    def check(self, condition: Scalar, text: str) -> None:
        """Report `text` (see dialects/status.py) at run time unless `condition`; what follows must be safe either way."""
        from mlir import ir

        ir.Operation.create(
            "cf.assert",
            operands=[condition.value],
            attributes={"msg": self.cache.text(text)},
            ip=self.ip,
            loc=self.location,
        )

    def div(self, a: Scalar | Number, b: Scalar | Number, rounding: str = "none") -> Scalar:
        """`a / b`; rounding "floor" or "trunc" as torch.div's. Integers need one of these."""
        a, b = self.pair(a, b)
        if kind(a.dtype) != "float":
            if rounding == "none":
                raise TypeError("true division of integers: cast to a float first")
            return self._int_divide(a, b, rounding)
        match rounding:
            case "floor":
                return self.wide(self._floor_divide, a, b)
            case "trunc":
                return self.trunc(self.wide(self._quotient, a, b))  # of the rounded quotient, as eager
        return self.wide(self._quotient, a, b)

    def remainder(self, a: Scalar | Number, b: Scalar | Number) -> Scalar:
        """`a - b * floor(a / b)`: the sign of `b`, as Python's `%`."""
        a, b = self.pair(a, b)
        if kind(a.dtype) != "float":
            return self._floor_fix(a, b)[1]
        return self.wide(self._float_remainder, a, b)

    def fmod(self, a: Scalar | Number, b: Scalar | Number) -> Scalar:
        """The remainder with the sign of `a`, as C's fmod."""
        a, b = self.pair(a, b)
        if kind(a.dtype) != "float":
            return self._truncating(a, b)[1]
        return self.wide(lambda x, y: self.emit("arith.remf", (x, y), x.dtype), a, b)

    def trunc(self, x: Scalar) -> Scalar:
        """Towards zero; integers unchanged."""
        if kind(x.dtype) != "float":
            return x
        return self.wide(lambda v: self.emit("math.trunc", (v,), v.dtype), x)

    def floor(self, x: Scalar) -> Scalar:
        """Towards minus infinity; integers unchanged."""
        if kind(x.dtype) != "float":
            return x
        return self.wide(lambda v: self.emit("math.floor", (v,), v.dtype), x)

    def copysign(self, a: Scalar | Number, b: Scalar | Number) -> Scalar:
        """`|a|` with the sign of `b`."""
        a, b = self.pair(a, b)
        return self.wide(lambda x, y: self.emit("math.copysign", (x, y), x.dtype), a, b)

    def pow(self, a: Scalar | Number, b: Scalar | Number) -> Scalar:
        """`a ** b`; integers by repeated squaring, wrapping; a negative integer exponent gives 1, -1 or 0 as torch."""
        a, b = self.pair(a, b)
        if kind(a.dtype) == "float":
            return self.wide(lambda x, y: self.emit("math.powf", (x, y), x.dtype), a, b)
        return self._int_power(a, b)

    # -- integers ---------------------------------------------------------------------------------------------
    def _truncating(self, a: Scalar, b: Scalar) -> tuple[Scalar, Scalar]:
        """Quotient and remainder towards zero; never traps."""
        if b.known is None or b.known == 0:
            is_zero = self.eq(b, 0)
            self.check(self.bitwise_not(is_zero), DIVISION_BY_ZERO.text)
            b = self.select(is_zero, 1, b)
        if kind(a.dtype) == "uint":
            return self.emit("arith.divui", (a, b), a.dtype), self.emit("arith.remui", (a, b), a.dtype)
        if b.known is not None and b.known != -1:
            return self.emit("arith.divsi", (a, b), a.dtype), self.emit("arith.remsi", (a, b), a.dtype)
        by_minus_one = self.eq(b, -1)
        safe = self.select(by_minus_one, 1, b)
        quotient = self.emit("arith.divsi", (a, safe), a.dtype)
        return self.select(by_minus_one, self.neg(quotient), quotient), self.emit("arith.remsi", (a, safe), a.dtype)

    def _floor_fix(self, a: Scalar, b: Scalar) -> tuple[Scalar, Scalar]:
        """Quotient and remainder towards minus infinity."""
        quotient, rest = self._truncating(a, b)
        if kind(a.dtype) == "uint":
            return quotient, rest
        differ = self.lt(self.bitwise_xor(rest, b), 0)
        fix = self.bitwise_and(self.ne(rest, 0), differ)
        return self.select(fix, self.sub(quotient, 1), quotient), self.select(fix, self.add(rest, b), rest)

    def _int_divide(self, a: Scalar, b: Scalar, rounding: str) -> Scalar:
        return (self._floor_fix if rounding == "floor" else self._truncating)(a, b)[0]

    def _int_power(self, a: Scalar, b: Scalar) -> Scalar:
        result, square = self.const(1, a.dtype), a
        bits = b.known.bit_length() if isinstance(b.known, int) and b.known >= 0 else dtypes.bits(a.dtype)
        for bit in range(bits):
            if isinstance(b.known, int) and b.known >= 0:
                result = self.mul(result, square) if b.known >> bit & 1 else result
            else:
                odd = self.ne(self.bitwise_and(b, 1 << bit), 0)
                result = self.select(odd, self.mul(result, square), result)
            if bit + 1 < bits:
                square = self.mul(square, square)
        if kind(a.dtype) == "uint" or (b.known is not None and b.known >= 0):
            return result
        minus = self.select(self.ne(self.bitwise_and(b, 1), 0), self.const(-1, a.dtype), self.const(1, a.dtype))
        inverse = self.select(self.eq(a, 1), 1, self.select(self.eq(a, -1), minus, self.const(0, a.dtype)))
        return self.select(self.lt(b, 0), inverse, result)

    # -- floats -----------------------------------------------------------------------------------------------
    def _quotient(self, x: Scalar, y: Scalar) -> Scalar:
        return self.emit("arith.divf", (x, y), x.dtype)

    def _float_remainder(self, x: Scalar, y: Scalar) -> Scalar:
        rest = self.emit("arith.remf", (x, y), x.dtype)
        differ = self.ne(self.lt(y, 0.0), self.lt(rest, 0.0))
        return self.select(self.bitwise_and(self.ne(rest, 0.0), differ), self.add(rest, y), rest)

    def _floor_divide(self, x: Scalar, y: Scalar) -> Scalar:
        """Python's float `//` through fmod, as c10::div_floor_floating."""
        plain = self._quotient(x, y)
        rest = self.emit("arith.remf", (x, y), x.dtype)
        quotient = self._quotient(self.sub(x, rest), y)
        differ = self.ne(self.lt(y, 0.0), self.lt(rest, 0.0))
        quotient = self.select(self.bitwise_and(self.ne(rest, 0.0), differ), self.sub(quotient, 1.0), quotient)
        floored = self.floor(quotient)
        floored = self.select(self.gt(self.sub(quotient, floored), 0.5), self.add(floored, 1.0), floored)
        zero = self.copysign(0.0, plain)
        return self.select(self.eq(y, 0.0), plain, self.select(self.ne(quotient, 0.0), floored, zero))
