"""pow, and the remainder of a division."""

from __future__ import annotations

from .exponentials import exp
from .logarithms import split
from .value import INF, LN2, NAN, TWO_THIRDS, Value, polynomial

# The remainder by long division of the significands: exact, at most one step for each power of two between x and y.
FMOD = """
  %a = call double @llvm.fabs.f64(double %x)
  %b = call double @llvm.fabs.f64(double %y)
  %finite = fcmp olt double %a, 0x7FF0000000000000
  %some = fcmp ogt double %b, 0.0
  %number = fcmp ord double %y, 0.0
  %fs = and i1 %finite, %some
  %valid = and i1 %fs, %number
  br i1 %valid, label %prepare, label %invalid
prepare:
  %smaller = fcmp olt double %a, %b
  br i1 %smaller, label %itself, label %divide
itself:
  ret double %x
divide:
  br label %grow
grow:
  %t = phi double [ %b, %divide ], [ %t2, %double ]
  %half = fmul double %a, 0.5
  %again = fcmp ole double %t, %half
  br i1 %again, label %double, label %subtract
double:
  %t2 = fmul double %t, 2.0
  br label %grow
subtract:
  %r = phi double [ %a, %grow ], [ %r2, %next ]
  %u = phi double [ %t, %grow ], [ %u2, %next ]
  %big = fcmp oge double %u, %b
  br i1 %big, label %next, label %end
next:
  %fits = fcmp oge double %r, %u
  %less = fsub double %r, %u
  %r2 = select i1 %fits, double %less, double %r
  %u2 = fmul double %u, 0.5
  br label %subtract
end:
  %signed = call double @llvm.copysign.f64(double %r, double %x)
  ret double %signed
invalid:
  ret double 0x7FF8000000000000"""


def _two_sum(a: Value | float, b: Value) -> tuple[Value, Value]:
    """a + b and its rounding error; |a| is the larger."""
    s = b + a
    return s, b - (s - a)


def _log_in_two(x: Value) -> tuple[Value, Value]:
    """log x in two parts, to about 2^-66: the series 2s (1 + z/3 + z²/5 …) with s = (m - 1) / (m + 1), z = s²."""
    e, m = split(x)
    f, d = m - 1.0, m + 1.0
    d_low = m - (d - 1.0)
    s = f / d
    s_low = (-s).fma(d_low, (-s).fma(d, f)) / d
    z = s * s
    z_low = s.fma(s, -z) + 2.0 * (s * s_low)
    p, p_low = _two_sum(TWO_THIRDS[0], z * polynomial(z, [2 / k for k in range(27, 3, -2)]))
    p_low = p_low + TWO_THIRDS[1]
    q = z * p  # z p in two parts, then s z p
    q_low = z.fma(p, -q) + (z * p_low + z_low * p)
    c = s * q
    c_low = s.fma(q, -c) + (s * q_low + s_low * q)
    high, low = _two_sum(2.0 * s, c)
    low = low + (2.0 * s_low + c_low)
    whole = e * LN2[0]
    total, rest = _two_sum(whole, high)
    swapped, other = _two_sum(high, whole)
    close = e.compare("oeq", 0.0)
    total, rest = close.choose(swapped, total), close.choose(other, rest)
    rest = rest + (e.fma(LN2[0], -whole) + e.fma(LN2[1], low))
    return total, rest


def pow(x: Value, y: Value) -> Value:
    """exp(y log |x|) with the logarithm and the product in two parts; then the cases of C99."""
    a = x.intrinsic("fabs")
    high, low = _log_in_two(a)
    product = y * high
    finite = product.intrinsic("fabs").compare("olt", 800.0)
    rest = finite.choose(y.fma(high, -product) + y * low, 0.0)
    made = exp(product, rest)
    # where |x| is 0 or infinite, or y is infinite
    grows = a.compare("ogt", 1.0).both(y.compare("ogt", 0.0))
    grows = grows.either(a.compare("olt", 1.0).both(y.compare("olt", 0.0)))
    edge = a.compare("oeq", 0.0).either(a.compare("oeq", INF)).either(y.intrinsic("fabs").compare("oeq", INF))
    made = edge.choose(grows.choose(INF, 0.0), made)
    whole = y.intrinsic("floor").compare("oeq", y)
    odd = whole.both((y * 0.5).intrinsic("floor").compare("une", y * 0.5))
    negative = x.bits().test("slt", 0)
    made = negative.both(odd).choose(-made, made)
    made = x.compare("olt", 0.0).both(a.compare("olt", INF)).choose(whole.choose(made, NAN), made)
    made = x.compare("uno", y).choose(x + y, made)
    one = a.compare("oeq", 1.0).both(y.intrinsic("fabs").compare("oeq", INF)).either(x.compare("oeq", 1.0))
    return one.either(y.compare("oeq", 0.0)).choose(1.0, made)
