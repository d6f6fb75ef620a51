"""erf and erfc, for f32 scalars and vectors."""

from __future__ import annotations

from mlir import ir

from .builder import MathBuilder
from .coefficients import ERF, ERF_TAIL, ERFC, ERFCX_P, ERFCX_Q
from .exp import exp_inside, exp_of_negative, exp_times


def erf(m: MathBuilder, x: ir.Value) -> ir.Value:
    """`x + x ERF(x^2)` for |x| < 1, else `1 - exp(-|x| ERF_TAIL(|x|))`: at most 1.5 ulp."""
    a = m.clamp(m.abs(x), 0.0, 4.0)  # erf(4) rounds to 1
    inner = m.fma(a, m.polynomial(m.mul(a, a), ERF), a)
    outer = m.sub(1.0, exp_inside(m, m.mul(m.neg(a), m.polynomial(a, ERF_TAIL))))
    return m.copysign(m.select(m.compare("lt", a, 1.0), inner, outer), x)


def erfc(m: MathBuilder, x: ir.Value) -> ir.Value:
    """`1 - erf(x)` below 1/2, else `exp(-x^2) ERFC((x - 2) / (x + 2)) / (1 + 2x)`: at most 2 ulp."""
    a = m.clamp(x, 0.4, 10.1)
    q = m.div(m.sub(a, 2.0), m.add(a, 2.0))
    square = m.mul(a, a)
    lost = m.fma(a, a, m.neg(square))
    p, d, twice = m.polynomial(q, ERFC), m.fma(a, 2.0, 1.0), m.add(a, a)
    ratio = m.div(p, d)
    rest = m.sub(m.fma(m.neg(ratio), twice, p), ratio)  # p - ratio (1 + 2x), which takes back the rounding of both
    ratio = m.add(ratio, m.div(rest, d))
    outer = exp_times(m, m.neg(square), lost, ratio)
    outer = m.select(m.compare("gt", x, 10.1), 0.0, outer)
    return m.select(m.compare("lt", x, 0.5), m.sub(1.0, erf(m, x)), outer)


def one_plus_erf(m: MathBuilder, x: ir.Value) -> ir.Value:
    """`1 + erf(x)` without cancellation, as in gelu: `e` for negative x and `2 - e` else, with `e = erfc(|x|)`.

    `e = exp(-a^2) P(a) / Q(a)`: three chains that do not wait for each other, so gelu takes a third less time than with
    one long polynomial. The relative error grows as `a^2` ulp down the negative tail, where adding 1 to erf leaves no
    digit. Below -9.3 exponential and P are those at -9.3; Q, of the true `a`, makes the result 0 at minus infinity, so
    that gelu is NaN there, as eager's.
    """
    a = m.abs(x)
    held = m.select(m.compare("gt", a, 9.3), 9.3, a)
    ratio = m.div(m.polynomial(held, ERFCX_P), m.polynomial(a, ERFCX_Q))
    e = m.mul(exp_of_negative(m, m.mul(held, held)), ratio)
    return m.select(m.compare("lt", x, 0.0), e, m.sub(2.0, e))
