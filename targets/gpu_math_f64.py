"""The f64 functions of GPUs as LLVM IR: no machine has approximations for them, so they are polynomials throughout.

A function is written as a formula on `Value`s, whose operators emit instructions. Series are Taylor's, on arguments
reduced until the next term is below 2^-53; erf and erfc are Chebyshev interpolations. Largest errors in ulp, against 50
digits on random arguments: exp, log, sin, cos 1.1; pow 1.5; the others 4. sin, cos and tan lose digits beyond 2^40.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence


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


def _polynomial(x: Value, coefficients: Sequence[float]) -> Value:
    """Horner's scheme, highest power first; at least two coefficients."""
    value: Value | float = coefficients[0]
    for c in coefficients[1:]:
        value = x.fma(value, c)
    assert isinstance(value, Value)
    return value


# Numbers in two or three parts whose sum has 100 or 150 bits.
LN2 = (0.6931471805599453, 2.3190468138462996e-17)
HALF_PI = (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33)
TWO_THIRDS = (0.6666666666666666, 3.700743415417188e-17)
INF, NAN = math.inf, math.nan


# -- exponentials --------------------------------------------------------------------------------------------------------
def _scaled(x: Value, n: Value) -> Value:
    """`x * 2^n` for an i64 n of -2000 .. 2000, in two steps: the result may be subnormal."""
    half = n.i64("ashr", 1)
    for part in (half, n.i64("sub", half)):
        x = x * part.i64("add", 1023).i64("shl", 52).as_double()
    return x


def _exp_reduced(r: Value) -> Value:
    """exp(r) for |r| up to 0.35, by r^13 / 13! and below."""
    return _polynomial(r, [1 / math.factorial(k) for k in range(13, -1, -1)])


def _exp(x: Value, low: Value | None = None) -> Value:
    """exp(x + low): 2^n exp(r) with n = round(x / ln 2)."""
    x = x.compare("ogt", 750.0).choose(750.0, x)  # NaN passes
    x = x.compare("olt", -750.0).choose(-750.0, x)
    n = (x * (1 / LN2[0])).intrinsic("rint")
    r = (-n).fma(LN2[1], (-n).fma(LN2[0], x))
    return _scaled(_exp_reduced(r if low is None else r + low), n.integer())


def _exp2(x: Value) -> Value:
    x = x.compare("ogt", 1100.0).choose(1100.0, x)
    x = x.compare("olt", -1100.0).choose(-1100.0, x)
    n = x.intrinsic("rint")
    f = x - n
    return _scaled(_exp_reduced(f.fma(LN2[0], f * LN2[1])), n.integer())


def _expm1(x: Value) -> Value:
    """By x^18 / 18! and below near 0, where exp(x) - 1 would cancel."""
    p = _polynomial(x, [1 / math.factorial(k) for k in range(18, 1, -1)])
    near = x.intrinsic("fabs").compare("olt", 0.5)
    return near.choose((x * x).fma(p, x), _exp(x) - 1.0)


def _sinh(x: Value) -> Value:
    a = x.intrinsic("fabs")
    e, half = _expm1(a), _exp(a * 0.5)
    large = a.compare("ogt", 22.0).choose(0.5 * half * half, 0.5 * (e + e / (e + 1.0)))
    return large.intrinsic("copysign", x)


def _cosh(x: Value) -> Value:
    a = x.intrinsic("fabs")
    e, half = _exp(a), _exp(a * 0.5)
    return a.compare("ogt", 22.0).choose(0.5 * half * half, 0.5 * e + 0.5 / e)


def _tanh(x: Value) -> Value:
    a = x.intrinsic("fabs")
    a = a.compare("ogt", 22.0).choose(22.0, a)
    e = _expm1(2.0 * a)
    return (e / (e + 2.0)).intrinsic("copysign", x)


# -- logarithms ----------------------------------------------------------------------------------------------------------
def _split(x: Value) -> tuple[Value, Value]:
    """A positive finite x as e and m, `x = 2^e m` with m in [sqrt(1/2), sqrt(2)); e as a number."""
    small = x.compare("olt", 2.0**-1022)
    bits = small.choose(x * 2.0**54, x).bits()
    e = bits.i64("lshr", 52).i64("sub", 1023).double()
    e = small.choose(e - 54.0, e)
    m = bits.i64("and", (1 << 52) - 1).i64("or", 1023 << 52).as_double()
    upper = m.compare("ogt", math.sqrt(2))
    return upper.choose(e + 1.0, e), upper.choose(m * 0.5, m)


def _log_reduced(m: Value) -> Value:
    """log m = f - f²/2 + s (f²/2 + R(s²)) with f = m - 1, s = f / (2 + f)."""
    f = m - 1.0
    s = f / (f + 2.0)
    z = s * s
    rest = z * _polynomial(z, [2 / k for k in range(23, 1, -2)])
    half = f * f * 0.5
    return f - (half - s * (half + rest))


def _log_edges(x: Value, y: Value) -> Value:
    y = x.compare("oeq", 0.0).choose(-INF, y)
    y = x.compare("olt", 0.0).choose(NAN, y)
    return x.compare("ueq", INF).choose(x, y)  # and NaN


def _log(x: Value) -> Value:
    e, m = _split(x)
    return _log_edges(x, e.fma(LN2[0], e.fma(LN2[1], _log_reduced(m))))


def _log2(x: Value) -> Value:
    e, m = _split(x)
    return _log_edges(x, _log_reduced(m).fma(1 / LN2[0], e))


def _log10(x: Value) -> Value:
    e, m = _split(x)
    high, low = 0.3010299956639812, -2.8037281277851704e-18  # log10(2)
    return _log_edges(x, e.fma(high, e.fma(low, _log_reduced(m) * (1 / math.log(10)))))


def _log1p(x: Value) -> Value:
    """log(u) + (x - (u - 1)) / u with u = 1 + x, what its rounding lost."""
    u = x + 1.0
    lost = (x - (u - 1.0)) / u
    fits = x.compare("ogt", -1.0).both(x.compare("olt", INF))
    made = _log(u) + fits.choose(lost, 0.0)
    return x.compare("oeq", 0.0).choose(x, made)  # -0 too


def _asinh(x: Value) -> Value:
    a = x.intrinsic("fabs")
    small = _log1p(a + a * a / ((a * a + 1.0).intrinsic("sqrt") + 1.0))
    return a.compare("ogt", 1e8).choose(_log(a) + LN2[0], small).intrinsic("copysign", x)


def _acosh(x: Value) -> Value:
    t = x - 1.0
    small = _log1p(t + (t.fma(t, 2.0 * t)).intrinsic("sqrt"))
    made = x.compare("ogt", 1e8).choose(_log(x) + LN2[0], small)
    return x.compare("olt", 1.0).choose(NAN, made)


def _atanh(x: Value) -> Value:
    a = x.intrinsic("fabs")
    return (0.5 * _log1p(2.0 * a / (1.0 - a))).intrinsic("copysign", x)


# -- trigonometry --------------------------------------------------------------------------------------------------------
def _reduced(x: Value) -> tuple[Value, Value]:
    """x = n pi/2 + r: sin r and cos r by their series, and n as an i64."""
    n = (x * (2 / math.pi)).intrinsic("rint")
    r = _reduced_by(x, n)
    # of large x too few digits are left for r: some sine it must be all the same, and no infinity
    return r.intrinsic("fabs").compare("ogt", 1.0).choose(0.0, r), n.integer()


def _reduced_by(x: Value, n: Value) -> Value:
    for part in HALF_PI:
        x = (-n).fma(part, x)
    return x


def _sin_series(r: Value) -> Value:
    z = r * r
    p = _polynomial(z, [(-1) ** k / math.factorial(2 * k + 1) for k in range(9, 0, -1)])
    return (r * z).fma(p, r)


def _cos_series(r: Value) -> Value:
    z = r * r
    p = _polynomial(z, [(-1) ** k / math.factorial(2 * k) for k in range(9, 1, -1)])
    half = z * 0.5
    w = 1.0 - half
    return w + ((1.0 - w - half) + z * z * p)


def _quadrant(r: Value, n: Value) -> Value:
    """sin(r + n pi/2)."""
    made = n.i64("and", 1).test("eq", 1).choose(_cos_series(r), _sin_series(r))
    return n.i64("and", 2).test("eq", 2).choose(-made, made)


def _sin(x: Value) -> Value:
    r, n = _reduced(x)
    return x.compare("oeq", 0.0).choose(x, _quadrant(r, n))


def _cos(x: Value) -> Value:
    r, n = _reduced(x)
    return _quadrant(r, n.i64("add", 1))


def _tan(x: Value) -> Value:
    r, n = _reduced(x)
    s, c = _sin_series(r), _cos_series(r)
    made = n.i64("and", 1).test("eq", 1).choose(-c / s, s / c)
    return x.compare("oeq", 0.0).choose(x, made)


def _atan_positive(a: Value) -> Value:
    """pi/2 - atan(1/a) beyond 1, pi/4 + atan((t - 1) / (t + 1)) beyond tan(pi/8), then the series."""
    beyond = a.compare("ogt", 1.0)
    t = beyond.choose(1.0 / a, a)
    upper = t.compare("ogt", math.tan(math.pi / 8))
    u = upper.choose((t - 1.0) / (t + 1.0), t)
    z = u * u
    p = _polynomial(z, [(-1) ** k / (2 * k + 1) for k in range(21, 0, -1)])
    made = (u * z).fma(p, u)
    high, low = HALF_PI[0], HALF_PI[1]
    made = upper.choose(high / 2 + (made + low / 2), made)
    return beyond.choose(high - (made - low), made)


def _atan(x: Value) -> Value:
    return _atan_positive(x.intrinsic("fabs")).intrinsic("copysign", x)


def _asin(x: Value) -> Value:
    return 2.0 * _atan(x / (((1.0 - x) * (x + 1.0)).intrinsic("sqrt") + 1.0))


def _acos(x: Value) -> Value:
    return 2.0 * _atan_positive(((1.0 - x) / (x + 1.0)).intrinsic("sqrt"))


def _atan2(y: Value, x: Value) -> Value:
    a, b = y.intrinsic("fabs"), x.intrinsic("fabs")
    steep = a.compare("ogt", b)
    small, large = steep.choose(b, a), steep.choose(a, b)
    ratio = large.compare("oeq", 0.0).choose(0.0, small / large)
    ratio = small.compare("oeq", INF).choose(1.0, ratio)
    high, low = HALF_PI[0], HALF_PI[1]
    made = _atan_positive(ratio)
    made = steep.choose(high - (made - low), made)
    left = x.bits().test("slt", 0)
    made = left.choose(2 * high - (made - 2 * low), made).intrinsic("copysign", y)
    return x.compare("uno", y).choose(x + y, made)


# -- erf -----------------------------------------------------------------------------------------------------------------
# erf(x) / x in x² on [0, 1]: relative error 1.4e-19
ERF = (
    5.957176147748911e-11, -1.1372848856791674e-09, 1.4659775274047436e-08, -1.6350312701054695e-07,
    1.6461000484121368e-06, -1.4925595266831182e-05, 0.0001205533111164271, -0.000854832698083379,
    0.0052239776248180145, -0.026866170645076792, 0.11283791670954879, -0.3761263890318375, 1.1283791670955126,
)  # fmt: skip
# erfc(x) exp(x²) (1 + 2x) in t = (x - 4) / (x + 4) for x of 0.5 and more: relative error 3.2e-19
ERFC = (
    -5.364292946797713e-10, 1.3376981147130194e-09, 4.2736729463974075e-09, -1.4095880533522243e-08,
    -2.257684349129723e-08, 1.0967819051080377e-07, 7.96362161070448e-08, -8.24799822831528e-07,
    2.9046034117143146e-07, 5.709232605508365e-06, -1.1220571756005913e-05, -2.4398980758716576e-05,
    0.00015062125915789803, -0.0001992567615096028, -0.0007577732112826517, 0.005031969989642661,
    -0.016197734066816082, 0.0371675155362959, -0.06633036581159818, 0.09373283499841437,
    -0.10103906603632638, 0.06809705425469109, 0.015379652102620052, -0.1396211168405625, 1.2329951186255526,
)  # fmt: skip


def _erfc_positive(a: Value) -> Value:
    """For a of 0.5 and more; the square's rounding error goes into the exponential."""
    a = a.compare("ogt", 28.0).choose(28.0, a)
    square = a * a
    power = _exp(-square, -(a.fma(a, -square)))
    t = (a - 4.0) / (a + 4.0)
    return power * _polynomial(t, ERFC) / (2.0 * a + 1.0)


def _erf(x: Value) -> Value:
    a = x.intrinsic("fabs")
    large = (1.0 - _erfc_positive(a)).intrinsic("copysign", x)
    return a.compare("olt", 1.0).choose(x * _polynomial(x * x, ERF), large)


def _erfc(x: Value) -> Value:
    a = x.intrinsic("fabs")
    large = _erfc_positive(a)
    large = x.compare("olt", 0.0).choose(2.0 - large, large)
    return a.compare("olt", 0.5).choose(1.0 - x * _polynomial(x * x, ERF), large)


# -- powers --------------------------------------------------------------------------------------------------------------
def _two_sum(a: Value | float, b: Value) -> tuple[Value, Value]:
    """a + b and its rounding error; |a| is the larger."""
    s = b + a
    return s, b - (s - a)


def _log_in_two(x: Value) -> tuple[Value, Value]:
    """log x in two parts, to about 2^-66: the series 2s (1 + z/3 + z²/5 …) with s = (m - 1) / (m + 1), z = s²."""
    e, m = _split(x)
    f, d = m - 1.0, m + 1.0
    d_low = m - (d - 1.0)
    s = f / d
    s_low = (-s).fma(d_low, (-s).fma(d, f)) / d
    z = s * s
    z_low = s.fma(s, -z) + 2.0 * (s * s_low)
    p, p_low = _two_sum(TWO_THIRDS[0], z * _polynomial(z, [2 / k for k in range(27, 3, -2)]))
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


def _pow(x: Value, y: Value) -> Value:
    """exp(y log |x|) with the logarithm and the product in two parts; then the cases of C99."""
    a = x.intrinsic("fabs")
    high, low = _log_in_two(a)
    product = y * high
    finite = product.intrinsic("fabs").compare("olt", 800.0)
    rest = finite.choose(y.fma(high, -product) + y * low, 0.0)
    made = _exp(product, rest)
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


# name: (formula, operands)
_FORMULAS: dict[str, tuple[Callable[..., Value], int]] = {
    "exp": (_exp, 1),
    "exp2": (_exp2, 1),
    "expm1": (_expm1, 1),
    "sinh": (_sinh, 1),
    "cosh": (_cosh, 1),
    "tanh": (_tanh, 1),
    "log": (_log, 1),
    "log2": (_log2, 1),
    "log10": (_log10, 1),
    "log1p": (_log1p, 1),
    "asinh": (_asinh, 1),
    "acosh": (_acosh, 1),
    "atanh": (_atanh, 1),
    "sin": (_sin, 1),
    "cos": (_cos, 1),
    "tan": (_tan, 1),
    "asin": (_asin, 1),
    "acos": (_acos, 1),
    "atan": (_atan, 1),
    "atan2": (_atan2, 2),
    "erf": (_erf, 1),
    "erfc": (_erfc, 1),
    "pow": (_pow, 2),
    "rsqrt": (lambda x: 1.0 / x.intrinsic("sqrt"), 1),
}

# The remainder by long division of the significands: exact, at most one step for each power of two between x and y.
_FMOD = """
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

NAMES = frozenset((*_FORMULAS, "fmod"))
DECLARATIONS = "\n".join(
    (
        "declare double @llvm.rint.f64(double)",
        "declare i64 @llvm.fptosi.sat.i64.f64(double)",
    )
)


def definition(name: str, full: str) -> str:
    """The definition of function `name` under its `full` name on a machine. It is a function of its own: they are long."""
    if name == "fmod":
        return f"define linkonce_odr hidden double @{full}(double %x, double %y) {{\nentry:{_FMOD}\n}}"
    formula, count = _FORMULAS[name]
    lines: list[str] = []
    operands = ["%x", "%y"][:count]
    made = formula(*(Value(lines, o) for o in operands))
    body = "\n".join(f"  {line}" for line in lines)
    signature = ", ".join(f"double {o}" for o in operands)
    return f"define linkonce_odr hidden double @{full}({signature}) {{\n{body}\n  ret double {made.text}\n}}"
