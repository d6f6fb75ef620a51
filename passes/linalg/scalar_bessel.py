"""Bessel functions J, Y and K of orders 0 and 1 on scalars: power series near 0, Hankel's integral beyond.

With `y = x^2 / 4`, `s` = -1 for J and Y and +1 for I and K, and psi the digamma function:

    J, I:  (x/2)^n sum_k s^k y^k / (k! (k + n)!)
    Y_0 = 2/pi (log(x/2) J_0 - A_0)               Y_1 = 2/pi (log(x/2) J_1 - A_1 - 1/x)
    K_0 = A_0 - log(x/2) I_0                      K_1 = 1/x + log(x/2) I_1 - A_1
    A_n = (x/2)^n sum_k s^k y^k (psi(k + 1) + psi(k + n + 1)) / (2 k! (k + n)!)

Beyond, with `chi = x - (n/2 + 1/4) pi` and `P + i Q = hankel(n, i / x)` (passes/math/chebyshev.py):

    J = sqrt(2 / (pi x)) (P cos chi - Q sin chi)  Y = sqrt(2 / (pi x)) (P sin chi + Q cos chi)
    K = sqrt(pi / (2 x)) exp(-x) hankel(n, 1 / x)
"""

from __future__ import annotations

import math
from functools import cache

from ..math import chebyshev
from .scalar_core import Scalar
from .scalar_special import ScalarSpecial

# where the series end: J and Y lose a digit to cancellation by then, K has converged
_WAVES, _DECAY = 5.0, 2.0
_EULER = 0.57721566490153286


@cache
def _series(order: int, sign: int, with_psi: bool) -> tuple[float, ...]:
    """Coefficients in `y` of J or I (without the power of `x / 2`), or of `A`; enough for `y` up to 6.25."""

    def psi(n: int) -> float:
        return math.fsum(1 / j for j in range(1, n)) - _EULER

    made = []
    for k in range(20):
        weight = (psi(k + 1) + psi(k + order + 1)) / 2 if with_psi else 1.0
        made.append(sign**k * weight / (math.factorial(k) * math.factorial(k + order)))
    return tuple(made)


class ScalarBessel(ScalarSpecial):
    """Adds Bessel functions of one float."""

    def bessel_j0(self, x: Scalar) -> Scalar:
        """J of order 0."""
        return self._in_f64(lambda v: self._bessel_j(0, v), x)

    def bessel_j1(self, x: Scalar) -> Scalar:
        """J of order 1."""
        return self._in_f64(lambda v: self._bessel_j(1, v), x)

    def bessel_y0(self, x: Scalar) -> Scalar:
        """Y of order 0."""
        return self._in_f64(lambda v: self._bessel_y(0, v), x)

    def bessel_y1(self, x: Scalar) -> Scalar:
        """Y of order 1."""
        return self._in_f64(lambda v: self._bessel_y(1, v), x)

    def bessel_k0e(self, x: Scalar) -> Scalar:
        """`exp(x) K(x)` of order 0."""
        return self._in_f64(lambda v: self._bessel_ke(0, v), x)

    def bessel_k1e(self, x: Scalar) -> Scalar:
        """`exp(x) K(x)` of order 1."""
        return self._in_f64(lambda v: self._bessel_ke(1, v), x)

    def _power_series(self, order: int, sign: int, with_psi: bool, x: Scalar) -> Scalar:
        half = self.mul(x, 0.5)
        made = self._polynomial(self.mul(half, half), _series(order, sign, with_psi))
        return self.mul(made, half) if order else made

    def _bessel_j(self, order: int, x: Scalar) -> Scalar:
        size = self.abs(x)
        p, q, cosine, sine = self._waves(order, size)
        far = self.sub(self.mul(p, cosine), self.mul(q, sine))
        near = self._power_series(order, -1, False, size)
        made = self.select(self.le(size, _WAVES), near, far)
        return made if order == 0 else self.mul(made, self.copysign(1.0, x))

    def _bessel_y(self, order: int, x: Scalar) -> Scalar:
        p, q, cosine, sine = self._waves(order, x)
        far = self.add(self.mul(p, sine), self.mul(q, cosine))
        logarithm = self.mul(self.log(self.mul(x, 0.5)), self._power_series(order, -1, False, x))
        near = self.sub(logarithm, self._power_series(order, -1, True, x))
        near = self.sub(near, self.div(1.0, x)) if order else near
        made = self.select(self.le(x, _WAVES), self.mul(near, 2 / math.pi), far)
        made = self.select(self.lt(x, 0.0), math.nan, made)
        return self.select(self.eq(x, 0.0), -math.inf, made)

    def _waves(self, order: int, x: Scalar) -> tuple[Scalar, Scalar, Scalar, Scalar]:
        """P and Q times `sqrt(2 / (pi x))`, and the cosine and sine of chi, for `x` above 5."""
        ratio = self.div(_WAVES, x)
        t = self.sub(self.mul(self.mul(ratio, ratio), 2.0), 1.0)
        even, odd = (chebyshev.hankel_waves(order, _WAVES, part) for part in (0, 1))
        scale = self.div(math.sqrt(2 / math.pi), self.sqrt(x))
        p = self.mul(self._chebyshev(t, even), scale)
        q = self.mul(self.mul(self._chebyshev(t, odd), ratio), scale)
        chi = self.sub(x, (order / 2 + 0.25) * math.pi)
        return p, q, self.cos(chi), self.sin(chi)

    def _bessel_ke(self, order: int, x: Scalar) -> Scalar:
        logarithm = self.mul(self.log(self.mul(x, 0.5)), self._power_series(order, 1, False, x))
        near = self.sub(self._power_series(order, 1, True, x), logarithm)
        near = self.sub(self.div(1.0, x), near) if order else near
        t = self.sub(self.div(2 * _DECAY, x), 1.0)
        far = self.div(self._chebyshev(t, chebyshev.hankel_decay(order, _DECAY)), self.sqrt(x))
        made = self.select(self.le(x, _DECAY), self.mul(near, self.exp(x)), far)
        made = self.select(self.lt(x, 0.0), math.nan, made)
        return self.select(self.eq(x, 0.0), math.inf, made)
