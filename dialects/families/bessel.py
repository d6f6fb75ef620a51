"""Bessel functions of orders 0 and 1 of one float.

References are by the trapezoidal rule on integral representations, which converges exponentially, and by Neumann's
series; the lowering (`passes/linalg/scalar_bessel.py`) uses neither.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from .unary import elementwise, unary

_EULER = 0.57721566490153286


# above this the first term of the asymptotic expansions is exact enough for a check
_FAR = 1e4


def _bessel_j(order: int, x: float) -> float:
    """`1/pi * integral of cos(order a - x sin a)` over `[0, pi]`."""
    if not math.isfinite(x):
        return math.nan
    if abs(x) > _FAR:
        return math.copysign(1, x) ** order * _wave(math.cos, order, abs(x))
    points = int(64 + 2 * abs(x)) + order
    angles = [2 * math.pi * (k + 0.5) / points for k in range(points)]
    return math.fsum(math.cos(order * a - x * math.sin(a)) for a in angles) / points


def _bessel_y(order: int, x: float) -> float:
    """Neumann's series of Bessel functions of the first kind (Abramowitz and Stegun 9.1.88, and its derivative)."""
    if not 0 < x < math.inf:
        return -math.inf if x == 0 else math.nan
    if x > _FAR:
        return _wave(math.sin, order, x)
    terms = range(1, int(20 + x))
    if order == 0:
        tail = math.fsum((-1) ** k * _bessel_j(2 * k, x) / k for k in terms)
        return 2 / math.pi * ((math.log(x / 2) + _EULER) * _bessel_j(0, x) - 2 * tail)
    tail = math.fsum((-1) ** k * (_bessel_j(2 * k - 1, x) - _bessel_j(2 * k + 1, x)) / k for k in terms)
    return 2 / math.pi * ((math.log(x / 2) + _EULER) * _bessel_j(1, x) + tail - _bessel_j(0, x) / x)


def _wave(function: Callable[[float], float], order: int, x: float) -> float:
    return math.sqrt(2 / (math.pi * x)) * function(x - (order / 2 + 0.25) * math.pi)


def _bessel_ke(order: int, x: float) -> float:
    """`exp(x) K(x) = integral of exp(-x (cosh t - 1)) cosh(order t)` over `t >= 0`."""
    if not 0 < x < math.inf:
        return math.inf if x == 0 else 0.0 if x == math.inf else math.nan
    if x > _FAR:
        return math.sqrt(math.pi / (2 * x))
    step = 1 / (32 + 4 * math.sqrt(x))
    return step * (0.5 + math.fsum(_decay(order, x, k * step) for k in range(1, 3500)))


def _decay(order: int, x: float, t: float) -> float:
    return math.exp(-2 * x * math.sinh(t / 2) ** 2) * math.cosh(order * t)


for _order in (0, 1):
    unary(
        f"bessel_j{_order}",
        f"the Bessel function of the first kind of order {_order}",
        elementwise(lambda x, n=_order: _bessel_j(n, x)),
        f"special.bessel_j{_order}",
        numerics="order",
        low=-20,
        high=20,
        halves=False,
        doubles=False,
    )
    unary(
        f"bessel_y{_order}",
        f"the Bessel function of the second kind of order {_order}",
        elementwise(lambda x, n=_order: _bessel_y(n, x)),
        f"special.bessel_y{_order}",
        numerics="order",
        low=0.05,
        high=20,
        halves=False,
        doubles=False,
    )
    unary(
        f"bessel_k{_order}e",
        f"`exp(x) K{_order}(x)`, modified Bessel function of the second kind",
        elementwise(lambda x, n=_order: _bessel_ke(n, x)),
        f"special.scaled_modified_bessel_k{_order}",
        numerics="order",
        low=0.05,
        high=12,
        halves=False,
    )
