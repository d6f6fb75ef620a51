"""Chebyshev fits of functions that have no closed form, computed when first needed (about 10 ms, in the worker).

The functions are evaluated to full f64 precision by quadrature; the number of terms is where the coefficients reach
rounding error, so nothing here is a magic number.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache


def coefficients(function: Callable[[float], float], terms: int) -> tuple[float, ...]:
    """Coefficients `c` with `function(t) = sum(c[k] T_k(t))` on [-1, 1], by interpolation at the Chebyshev nodes."""
    angles = [(k + 0.5) * math.pi / terms for k in range(terms)]
    values = [function(math.cos(a)) for a in angles]
    made = [2 / terms * math.fsum(v * math.cos(j * a) for v, a in zip(values, angles)) for j in range(terms)]
    return (made[0] / 2, *made[1:])


def scaled_bessel_i(order: int, x: float) -> float:
    """`exp(-x) I_order(x)` for `x >= 0`, by the trapezoidal rule, which converges exponentially for periodic functions."""
    points = int(64 + 24 * math.sqrt(x))
    angles = [(k + 0.5) * math.pi / points for k in range(points)]
    return math.fsum(math.exp(-2 * x * math.sin(a / 2) ** 2) * math.cos(order * a) for a in angles) / points


@cache
def bessel_i_near(order: int) -> tuple[float, ...]:
    """`exp(-x) I_order(x) / x^order` for `x = 4 (t + 1)` in [0, 8]."""
    return coefficients(lambda t: scaled_bessel_i(order, 4 * (t + 1)) / (4 * (t + 1)) ** order, 30)


@cache
def bessel_i_far(order: int) -> tuple[float, ...]:
    """`sqrt(x) exp(-x) I_order(x)` for `x = 16 / (t + 1)` above 8."""
    return coefficients(lambda t: scaled_bessel_i(order, 16 / (t + 1)) * math.sqrt(16 / (t + 1)), 25)


@cache
def scaled_erfc() -> tuple[float, ...]:
    """`(x + 2) erfcx(x)` for `t = (x - 2) / (x + 2)`, `x >= 0`, where `erfcx(x) = exp(x^2) erfc(x)`.

    `erfcx(x) = 2/sqrt(pi) * integral of exp(-u^2 - 2 u x)` over `u >= 0`, by the tanh-sinh-like rule `u = exp(v - exp(-v))`.
    """
    step = 1 / 32
    nodes = []
    for k in range(-160, 161):
        v = k * step
        u = math.exp(v - math.exp(-v))
        nodes.append((u, u * (1 + math.exp(-v))))

    def function(t: float) -> float:
        x = 2 * (1 + t) / (1 - t)
        # in units of the decay length, so that large x is resolved too
        scale = 1 / (1 + x)
        parts = (w * math.exp(-((u * scale) ** 2) - 2 * u * scale * x) for u, w in nodes)
        return 2 / math.sqrt(math.pi) * scale * step * math.fsum(parts) * (x + 2)

    return coefficients(function, 40)


def hankel(order: int, w: complex) -> complex:
    """`2 / gamma(n + 1/2) * integral of exp(-v^2) v^(2 n) (1 + w v^2 / 2)^(n - 1/2)` over `v >= 0`, for `|w| <= 1/2`.

    The integrand is even and analytic in a strip, so the trapezoidal rule converges exponentially.
    """
    step = 1 / 10
    total = 0.5 + 0j if order == 0 else 0j
    for k in range(1, 70):
        square = (k * step) ** 2
        total += math.exp(-square) * square**order * (1 + w * square / 2) ** (order - 0.5)
    return 2 / math.gamma(order + 0.5) * step * total


@cache
def hankel_waves(order: int, start: float, part: int) -> tuple[float, ...]:
    """The real part of `hankel(order, i / x)`, or the imaginary one times `x / start`, for `start / x = sqrt((t + 1) / 2)`."""

    def function(t: float) -> float:
        ratio = math.sqrt((t + 1) / 2)
        value = hankel(order, 1j * ratio / start)
        return value.imag / ratio if part else value.real

    return coefficients(function, 24)


@cache
def hankel_decay(order: int, start: float) -> tuple[float, ...]:
    """`sqrt(pi / 2) hankel(order, 1 / x)` for `x = 2 start / (t + 1)`: `sqrt(x) exp(x) K(x)` above `start`."""
    return coefficients(lambda t: math.sqrt(math.pi / 2) * hankel(order, (t + 1) / (2 * start)).real, 28)
