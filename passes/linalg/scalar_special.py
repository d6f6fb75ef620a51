"""Special functions on scalars: gamma, inverse error function, Bessel I, scaled erfc. Computed in f64, rounded once.

f64 keeps the formulas short (no double-single tricks) and gives f32 results that are correct to an ulp; these functions
are rare in models, so their speed matters less than their values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ..math import chebyshev
from .scalar_core import Number, Scalar
from .scalar_math import ScalarMath

# Lanczos, g = 7, 9 terms: P. Godfrey, "A note on the computation of the convergent Lanczos complex Gamma", 2001
_LANCZOS = (
    0.99999999999980993,
    676.5203681218851,
    -1259.1392167224028,
    771.32342877765313,
    -176.61502916214059,
    12.507343278686905,
    -0.13857109526572012,
    9.9843695780195716e-6,
    1.5056327351493116e-7,
)
# B(2k) / 2k of the asymptotic series of digamma
_DIGAMMA = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)
# B(2k) / (2k)! of the Euler-Maclaurin formula
_EULER = (1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000, 1 / 74724249600)
# M. J. Wichura, "Algorithm AS 241: the percentage points of the normal distribution", PPND16, 1988:
# numerators and denominators for the centre, the near and the far tail
_CENTRE = (
    (3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3, 1.3731693765509461125e4,
     4.5921953931549871457e4, 6.7265770927008700853e4, 3.3430575583588128105e4, 2.5090809287301226727e3),
    (1.0, 4.2313330701600911252e1, 6.8718700749205790830e2, 5.3941960214247511077e3,
     2.1213794301586595867e4, 3.9307895800092710610e4, 2.8729085735721942674e4, 5.2264952788528545610e3),
)  # fmt: skip
_NEAR = (
    (1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0, 3.64784832476320460504e0,
     1.27045825245236838258e0, 2.41780725177450611770e-1, 2.27238449892691845833e-2, 7.74545014278341407640e-4),
    (1.0, 2.05319162663775882187e0, 1.67638483018380384940e0, 6.89767334985100004550e-1,
     1.48103976427480074590e-1, 1.51986665636164571966e-2, 5.47593808499534494600e-4, 1.05075007164441684324e-9),
)  # fmt: skip
_FAR = (
    (6.65790464350110377720e0, 5.46378491116411436990e0, 1.78482653991729133580e0, 2.96560571828504891230e-1,
     2.65321895265761230930e-2, 1.24266094738807843860e-3, 2.71155556874348757815e-5, 2.01033439929228813265e-7),
    (1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2,
     7.86869131145613259100e-4, 1.84631831751005468180e-5, 1.42151175831644588870e-7, 2.04426310338993978564e-15),
)  # fmt: skip


class ScalarSpecial(ScalarMath):
    """Adds special functions of one float."""

    def _in_f64(self, fn: Callable[[Scalar], Scalar], x: Scalar) -> Scalar:
        return self.cast(fn(self.cast(x, "f64")), x.dtype)

    def _polynomial(self, x: Scalar, coefficients: Sequence[float]) -> Scalar:
        """`sum(c[k] x^k)` by Horner."""
        total: Scalar | Number = coefficients[-1]
        for c in reversed(coefficients[:-1]):
            total = self.add(self.mul(x, total), c)
        return self.like(total, x.dtype)

    def _chebyshev(self, t: Scalar, coefficients: Sequence[float]) -> Scalar:
        """`sum(c[k] T_k(t))` by Clenshaw."""
        after, total = self.const(0.0, "f64"), self.const(0.0, "f64")
        twice = self.mul(t, 2.0)
        for c in reversed(coefficients[1:]):
            after, total = total, self.add(self.sub(self.mul(twice, total), after), c)
        return self.add(self.sub(self.mul(t, total), after), coefficients[0])

    # -- gamma ------------------------------------------------------------------------------------------------
    def lgamma(self, x: Scalar) -> Scalar:
        """`log |gamma(x)|`: Lanczos from 0.5 on, reflection below; inf at 0, -1, -2, …; exactly 0 at 1 and 2."""
        return self._in_f64(self._lgamma, x)

    def _lgamma(self, x: Scalar) -> Scalar:
        low = self.lt(x, 0.5)
        z = self.sub(self.select(low, self.sub(1.0, x), x), 1.0)
        series = self.const(_LANCZOS[0], "f64")
        for k, c in enumerate(_LANCZOS[1:], 1):
            series = self.add(series, self.div(c, self.add(z, float(k))))
        t = self.add(z, 7.5)
        growth = self.sub(self.mul(self.add(z, 0.5), self.sub(self.log(t), 1.0)), 7.0)
        right = self.add(self.add(growth, 0.5 * math.log(2 * math.pi)), self.log(series))
        left = self.sub(self.log(self.div(math.pi, self.abs(self._sin_pi(x)))), right)
        made = self.select(low, left, right)
        made = self.select(self.logical_or(self.eq(x, 1.0), self.eq(x, 2.0)), 0.0, made)
        return self.select(self.isinf(x), math.inf, made)

    def _sin_pi(self, x: Scalar) -> Scalar:
        """`|sin(pi x)|`, 0 exactly at integers."""
        return self.sin(self.mul(self.sub(x, self.round(x)), math.pi))

    def digamma(self, x: Scalar) -> Scalar:
        """The derivative of `log gamma(x)`: asymptotic series at `x + 10`, reflection below 0; NaN at -1, -2, …"""
        return self._in_f64(self._digamma, x)

    def _digamma(self, x: Scalar) -> Scalar:
        low = self.le(x, 0.0)
        z = self.select(low, self.sub(1.0, x), x)
        shifted = self.const(0.0, "f64")
        for k in range(10):
            shifted = self.add(shifted, self.div(1.0, self.add(z, float(k))))
        large = self.add(z, 10.0)
        square = self.div(1.0, self.mul(large, large))
        tail = self.mul(square, self._polynomial(square, _DIGAMMA))
        right = self.sub(self.sub(self.sub(self.log(large), self.div(0.5, large)), tail), shifted)
        fraction = self.sub(x, self.round(x))
        angle = self.mul(fraction, math.pi)
        cotangent = self.div(self.cos(angle), self.sin(angle))
        left = self.sub(right, self.mul(cotangent, math.pi))
        made = self.select(low, self.select(self.eq(fraction, 0.0), math.nan, left), right)
        made = self.select(self.eq(x, math.inf), math.inf, made)
        return self.select(self.eq(x, 0.0), self.copysign(math.inf, self.neg(x)), made)

    def polygamma(self, x: Scalar, n: int) -> Scalar:
        """Derivative number `n >= 1` of digamma: `(-1)^(n+1) n! zeta(n + 1, x)`; infinite at 0, -1, -2, …

        Below 0 by reflection: `psi_n(x) = (-1)^n psi_n(1 - x) - pi^(n+1) P_n(cot(pi x))`, where `P_n(cot)` is the n-th
        derivative of cot: `P_0(c) = c`, `P_(k+1) = -(1 + c^2) P_k'`.
        """
        return self._in_f64(lambda v: self._polygamma(v, n), x)

    def _polygamma(self, x: Scalar, n: int) -> Scalar:
        sign = 1.0 if n % 2 else -1.0
        low = self.le(x, 0.0)
        right = self.mul(self._zeta(n + 1, self.select(low, self.sub(1.0, x), x)), sign * math.factorial(n))
        fraction = self.sub(x, self.round(x))
        angle = self.mul(fraction, math.pi)
        cotangent = self.div(self.cos(angle), self.sin(angle))
        derivative = [0.0, 1.0]
        for _ in range(n):
            slope = [k * c for k, c in enumerate(derivative)][1:]
            derivative = [-a - b for a, b in zip(slope + [0.0, 0.0], [0.0, 0.0, *slope])]
        bend = self.mul(self._polynomial(cotangent, derivative), math.pi ** (n + 1))
        left = self.sub(self.mul(right, -sign), bend)
        left = self.select(self.eq(fraction, 0.0), sign * math.inf, left)
        return self.select(low, left, right)

    def _zeta(self, s: int, q: Scalar) -> Scalar:
        """`sum((q + k)^-s)` over `k >= 0` for `q > 0`: ten terms, then Euler-Maclaurin."""
        total = self.const(0.0, "f64")
        for k in range(10):
            total = self.add(total, self._inverse_power(self.add(q, float(k)), s))
        w = self.add(q, 10.0)
        power = self._inverse_power(w, s - 1)
        total = self.add(total, self.mul(power, 1 / (s - 1)))
        power = self.div(power, w)
        total = self.add(total, self.mul(power, 0.5))
        factor, inverse = float(s), self.div(1.0, self.mul(w, w))
        power = self.div(power, w)
        for k, c in enumerate(_EULER, 1):
            total = self.add(total, self.mul(power, c * factor))
            power = self.mul(power, inverse)
            factor *= (s + 2 * k - 1) * (s + 2 * k)
        return total

    def _inverse_power(self, x: Scalar, n: int) -> Scalar:
        result, square = self.const(1.0, "f64"), x
        while n:
            result = self.mul(result, square) if n & 1 else result
            n >>= 1
            square = self.mul(square, square) if n else square
        return self.div(1.0, result)

    # -- normal distribution ----------------------------------------------------------------------------------
    def ndtri(self, p: Scalar) -> Scalar:
        """The `x` whose normal distribution function is `p`; -inf at 0, inf at 1, NaN outside."""

        def fn(v: Scalar) -> Scalar:
            return self._quantile(self.sub(v, 0.5), self.minimum(v, self.sub(1.0, v)))

        return self._in_f64(fn, p)

    def erfinv(self, x: Scalar) -> Scalar:
        """The inverse of erf; infinite at -1 and 1, NaN outside."""

        def fn(v: Scalar) -> Scalar:
            tail = self.mul(self.sub(1.0, self.abs(v)), 0.5)
            return self.mul(self._quantile(self.mul(v, 0.5), tail), math.sqrt(0.5))

        return self._in_f64(fn, x)

    def _quantile(self, q: Scalar, tail: Scalar) -> Scalar:
        """AS 241 for `p = q + 0.5`, with `tail = min(p, 1 - p)`, which the caller has without cancellation."""

        def ratio(r: Scalar, tables: tuple[Sequence[float], Sequence[float]]) -> Scalar:
            return self.div(self._polynomial(r, tables[0]), self._polynomial(r, tables[1]))

        centre = self.mul(q, ratio(self.sub(0.180625, self.mul(q, q)), _CENTRE))
        r = self.sqrt(self.neg(self.log(tail)))
        outer = self.select(self.le(r, 5.0), ratio(self.sub(r, 1.6), _NEAR), ratio(self.sub(r, 5.0), _FAR))
        outer = self.select(self.eq(tail, 0.0), math.inf, outer)
        return self.select(self.le(self.abs(q), 0.425), centre, self.copysign(outer, q))

    def erfcx(self, x: Scalar) -> Scalar:
        """`exp(x^2) erfc(x)`; for negative `x` `2 exp(x^2) - erfcx(-x)`."""
        return self._in_f64(self._erfcx, x)

    def _erfcx(self, x: Scalar) -> Scalar:
        size = self.abs(x)
        t = self.div(self.sub(size, 2.0), self.add(size, 2.0))
        t = self.select(self.isinf(size), 1.0, t)
        right = self.div(self._chebyshev(t, chebyshev.scaled_erfc()), self.add(size, 2.0))
        left = self.sub(self.mul(self.exp(self.mul(x, x)), 2.0), right)
        return self.select(self.lt(x, 0.0), left, right)

    def log_ndtr(self, x: Scalar) -> Scalar:
        """The logarithm of the normal distribution function, exact in the left tail too."""

        def fn(v: Scalar) -> Scalar:
            scaled = self.mul(v, math.sqrt(0.5))
            left = self.sub(self.log(self.mul(self._erfcx(self.neg(scaled)), 0.5)), self.mul(scaled, scaled))
            right = self.log1p(self.mul(self.erfc(scaled), -0.5))
            return self.select(self.lt(v, -1.0), left, right)

        return self._in_f64(fn, x)

    # -- Bessel -----------------------------------------------------------------------------------------------
    def i0e(self, x: Scalar) -> Scalar:
        """`exp(-|x|) I0(x)`, modified Bessel function."""
        return self._in_f64(lambda v: self._bessel_ie(0, v), x)

    def i1e(self, x: Scalar) -> Scalar:
        """`exp(-|x|) I1(x)`."""
        return self._in_f64(lambda v: self._bessel_ie(1, v), x)

    def i0(self, x: Scalar) -> Scalar:
        """The modified Bessel function of order 0."""
        return self._in_f64(lambda v: self.mul(self.exp(self.abs(v)), self._bessel_ie(0, v)), x)

    def i1(self, x: Scalar) -> Scalar:
        """The modified Bessel function of order 1."""
        return self._in_f64(lambda v: self.mul(self.exp(self.abs(v)), self._bessel_ie(1, v)), x)

    def _bessel_ie(self, order: int, x: Scalar) -> Scalar:
        size = self.abs(x)
        near = self._chebyshev(self.sub(self.mul(size, 0.25), 1.0), chebyshev.bessel_i_near(order))
        near = near if order == 0 else self.mul(near, size)
        far = self._chebyshev(self.sub(self.div(16.0, size), 1.0), chebyshev.bessel_i_far(order))
        made = self.select(self.le(size, 8.0), near, self.div(far, self.sqrt(size)))
        return made if order == 0 else self.select(self.lt(x, 0.0), self.neg(made), made)
