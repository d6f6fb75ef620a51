"""Fit the polynomials and ratios of `passes/math/*.py`: minimax fits, coefficients rounded to f32 one by one.

    python -m lamina.tools.minimax            prints every table

A polynomial `p` of the given degree minimises `max |w(x) (p(x) - f(x))|` on [low, high]. Rounding all coefficients at
once would lose up to a bit; instead the lowest is rounded, the rest is fitted again for it, and so on. Lawson's
algorithm (iteratively reweighted least squares) does the fits. Needs mpmath; users never run this.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mpmath as mp
import numpy as np

mp.mp.prec = 160


@dataclass
class Fit:
    """`name[i]` multiplies `x**i`; the polynomial approximates `f` on [low, high] with error weight `weight`."""

    name: str
    f: Callable[[Any], Any]
    low: float
    high: float
    degree: int
    weight: Callable[[Any], Any]
    exact: tuple[float, ...] = ()  # leading coefficients that are given
    f64: bool = False


def lawson(x: np.ndarray, y: np.ndarray, w: np.ndarray, start: int, degree: int) -> np.ndarray:
    """Coefficients of `x**start ... x**degree` that minimise `max |w (p - y)|`: least squares, reweighted by the error."""
    scale = np.abs(x).max()
    powers = (x / scale)[:, None] ** np.arange(start, degree + 1)
    lawson_weights = np.ones_like(x)
    best, least = np.zeros(degree + 1 - start), np.inf
    for _ in range(60):
        factor = w * np.sqrt(lawson_weights)
        c = np.linalg.lstsq(powers * factor[:, None], y * factor, rcond=None)[0]
        error = np.abs(w * (powers @ c - y))
        if error.max() < least:
            best, least = c, error.max()
        lawson_weights = lawson_weights * (error + 1e-3 * error.max())
        lawson_weights /= lawson_weights.sum()
    return best / scale ** np.arange(start, degree + 1)


def fit(spec: Fit) -> list[float]:
    """The rounded coefficients of `spec`."""
    nodes = np.cos(np.pi * (np.arange(300) + 0.5) / 300)
    x = (spec.low + spec.high) / 2 + (spec.high - spec.low) / 2 * nodes
    y = np.array([float(spec.f(mp.mpf(v))) for v in x])
    w = np.array([abs(float(spec.weight(mp.mpf(v)))) for v in x])
    done = [float(c) for c in spec.exact]
    while len(done) <= spec.degree:
        rest = y - np.polynomial.polynomial.polyval(x, done) if done else y
        c = lawson(x, rest, w, len(done), spec.degree)[0]
        done.append(float(c) if spec.f64 else float(np.float32(c)))
    return done


def worst(spec: Fit, coefficients: list[float]) -> float:
    """The largest weighted error on a fine grid, as a power of two."""
    low, high = mp.mpf(spec.low), mp.mpf(spec.high)
    total = mp.mpf(0)
    for i in range(1001):
        x = low + (high - low) * i / 1000
        p = sum(mp.mpf(c) * x**j for j, c in enumerate(coefficients))
        total = max(total, abs(spec.weight(x) * (p - spec.f(x))))
    return float(mp.log(total, 2)) if total else -200.0


@dataclass
class Ratio:
    """`P / Q` approximates `f`, which is 1 at 0, on [0, high]; `name_P` and `name_Q` begin with 1."""

    name: str
    f: Callable[[Any], Any]
    high: float
    degrees: tuple[int, int]


def fit_ratio(spec: Ratio) -> tuple[list[float], list[float]]:
    """P and Q, which minimise `max |P / (Q f) - 1|`; P is fitted again for a rounded Q.

    `P - f (Q - 1) = f` is linear in the coefficients; it is weighted by the last Q, so that its error is the ratio's.
    """
    x = spec.high * ((1 + np.cos(np.pi * (np.arange(600) + 0.5) / 600)) / 2) ** 2  # dense near 0
    y = np.array([float(spec.f(mp.mpf(v))) for v in x])
    p_degree, q_degree = spec.degrees
    powers = x[:, None] ** np.arange(max(spec.degrees) + 1)
    columns = np.hstack([powers[:, 1 : p_degree + 1], -y[:, None] * powers[:, 1 : q_degree + 1]])
    scale = np.abs(columns).max(0)
    lawson_weights, q, best, least = np.ones_like(x), np.ones_like(x), np.zeros(len(scale)), np.inf
    for _ in range(400):
        factor = np.sqrt(lawson_weights) / (y * q)
        c = np.linalg.lstsq(columns / scale * factor[:, None], (y - 1) * factor, rcond=None)[0] / scale
        q = 1 + powers[:, 1 : q_degree + 1] @ c[p_degree:]
        error = np.abs((1 + powers[:, 1 : p_degree + 1] @ c[:p_degree]) / (q * y) - 1)
        if error.max() < least:
            best, least = c, error.max()
        lawson_weights = lawson_weights * (error + 1e-3 * error.max())
        lawson_weights /= lawson_weights.sum()
    rounded = [1.0, *(float(np.float32(v)) for v in best[p_degree:])]
    q = powers[:, : q_degree + 1] @ rounded
    done = [1.0]
    while len(done) <= p_degree:
        rest = q * y - np.polynomial.polynomial.polyval(x, done)
        done.append(float(np.float32(lawson(x, rest, 1 / (q * y), len(done), p_degree)[0])))
    return done, rounded


def worst_ratio(spec: Ratio, p: list[float], q: list[float]) -> float:
    """The largest relative error on a fine grid, as a power of two."""
    total = mp.mpf(0)
    for i in range(1, 1001):
        x = mp.mpf(spec.high) * i / 1000
        value = mp.polyval(p[::-1], x) / mp.polyval(q[::-1], x)
        total = max(total, abs(value / spec.f(x) - 1))
    return float(mp.log(total, 2))


def _series(f: Callable, limit: Any) -> Callable:
    """`f` with its value at 0 given (where its formula is 0 / 0)."""
    return lambda x: f(x) if abs(x) > mp.mpf(2) ** -60 else limit


_HALF_LN2 = float(mp.log(2) / 2) * 1.0001
_SQRT = (float(mp.sqrt(mp.mpf(1) / 2)) - 1, float(mp.sqrt(2)) - 1)
_one = lambda x: mp.mpf(1)
_expm1_r = _series(lambda r: (mp.expm1(r) - r) / r**2, mp.mpf(1) / 2)
_exp2_r = _series(lambda r: mp.expm1(r * mp.log(2)) / r, mp.log(2))
_log1p_f = _series(lambda f: (mp.log1p(f) - f + f * f / 2) / f**3, mp.mpf(1) / 3)
_odd = lambda g, limit: _series(lambda t: g(mp.sqrt(t)), limit)

FITS = [
    # exp(r) - 1 = r + r^2 EXP(r)
    Fit("EXP", _expm1_r, -_HALF_LN2, _HALF_LN2, 4, lambda r: r * r),
    Fit("EXPM1", _expm1_r, -_HALF_LN2, _HALF_LN2, 5, lambda r: r),
    # exp2(r) - 1 = r EXP2(r)
    Fit("EXP2", _exp2_r, -0.5, 0.5, 5, lambda r: r),
    # log(1 + f) = f - f^2 / 2 + f^3 LOG(f)
    Fit("LOG", _log1p_f, *_SQRT, 8, lambda f: f * f),
    # erf(x) = x + x ERF(x^2) for x < 1;  1 - erf(x) = exp(-x ERF_TAIL(x)) above
    Fit("ERF", _odd(lambda x: mp.erf(x) / x - 1, 2 / mp.sqrt(mp.pi) - 1), 0.0, 1.0, 6, _one),
    Fit("ERF_TAIL", lambda x: -mp.log(mp.erfc(x)) / x, 0.95, 4.0, 8, lambda x: x * mp.erfc(x) / mp.erf(x)),
    # erfc(x) = exp(-x^2) ERFC(q) / (1 + 2 x), q = (x - 2) / (x + 2), for 0.4 <= x <= 10.1
    Fit(
        "ERFC",
        lambda q: (lambda x: mp.exp(x * x) * mp.erfc(x) * (1 + 2 * x))(2 * (1 + q) / (1 - q)),
        -0.67,
        0.67,
        9,
        _one,
    ),
    # sin(r) = r + r^3 SIN(r^2),  cos(r) = 1 - r^2 / 2 + r^4 COS(r^2),  |r| <= pi / 4
    Fit("SIN", _odd(lambda r: (mp.sin(r) - r) / r**3, -mp.mpf(1) / 6), 0.0, 0.617, 3, lambda t: t),
    Fit("COS", _odd(lambda r: (mp.cos(r) - 1 + r * r / 2) / r**4, mp.mpf(1) / 24), 0.0, 0.617, 2, lambda t: t * t),
    Fit("TAN", _odd(lambda r: (mp.tan(r) - r) / r**3, mp.mpf(1) / 3), 0.0, 0.617, 6, lambda t: t),
    # atan(x) = x + x^3 ATAN(x^2),  |x| <= 1;  asin(x) = x + x^3 ASIN(x^2),  |x| <= 1/2
    Fit("ATAN", _odd(lambda x: (mp.atan(x) - x) / x**3, -mp.mpf(1) / 3), 0.0, 1.0, 9, lambda t: t),
    Fit("ASIN", _odd(lambda x: (mp.asin(x) - x) / x**3, mp.mpf(1) / 6), 0.0, 0.25, 5, lambda t: t),
    # in f64, for pow: atanh(s) = s + s^3 LOG_F64(s^2), |s| <= 0.1716;  exp(r) - 1 = r EXP_F64(r)
    Fit("LOG_F64", _odd(lambda s: (mp.atanh(s) - s) / s**3, mp.mpf(1) / 3), 0.0, 0.02945, 4, lambda t: t, f64=True),
    Fit("EXP_F64", _series(lambda r: mp.expm1(r) / r, mp.mpf(1)), -_HALF_LN2, _HALF_LN2, 7, lambda r: r, f64=True),
]

RATIOS = [
    # erfc(a) = exp(-a^2) ERFCX(a), 0 <= a <= 9.3
    Ratio("ERFCX", lambda a: mp.exp(a * a) * mp.erfc(a), 9.3, (4, 5)),
]


def two_over_pi(start: int) -> list[float]:
    """2 / pi in four pieces of 29 bits, without the bits that only add full turns to `x 2/pi` for x >= 2^start."""
    mp.mp.prec = 400
    weight = 25 - start  # x is a multiple of 2^(start - 23): bits of weight 2^weight and more give multiples of 4
    rest = mp.fmod(2 / mp.pi, mp.mpf(2) ** weight)
    pieces = []
    for i in range(1, 5):
        unit = mp.mpf(2) ** (weight - 29 * i)
        piece = mp.floor(rest / unit) * unit
        pieces.append(float(piece))
        rest -= piece
    return pieces


def main() -> None:
    """Print every table, with its error, as the Python source that `math/coefficients.py` holds."""
    for spec in FITS:
        c = fit(spec)
        print(f"# {spec.name}: error 2^{worst(spec, c):.1f}")
        print(f"{spec.name} = ({', '.join(repr(x) if spec.f64 else f'{x:.9g}' for x in c)})")
    for ratio in RATIOS:
        p, q = fit_ratio(ratio)
        print(f"# {ratio.name}: error 2^{worst_ratio(ratio, p, q):.1f}")
        for letter, c in (("P", p), ("Q", q)):
            print(f"{ratio.name}_{letter} = ({', '.join(f'{x:.9g}' for x in c)})")
    print("# pieces of 2 / pi for arguments from 2^45, 2^66, 2^87, 2^108 on (see trig.py)")
    print("TWO_OVER_PI = (")
    for start in (45, 66, 87, 108):
        print(f"    ({', '.join(map(repr, two_over_pi(start)))}),")
    print(")")


if __name__ == "__main__":
    main()
