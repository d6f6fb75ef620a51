"""ATen's special functions."""

from __future__ import annotations

import math
from typing import Any

from .registry import Value, add, aten
from .tensor_math import T

_OPS = {
    "lgamma": "lgamma",
    "special_gammaln": "lgamma",
    "digamma": "digamma",
    "special_digamma": "digamma",
    "special_psi": "digamma",
    "erfinv": "erfinv",
    "special_erfinv": "erfinv",
    "special_ndtri": "ndtri",
    "special_erfcx": "erfcx",
    "special_log_ndtr": "log_ndtr",
    "i0": "i0",
    "special_i0": "i0",
    "special_i0e": "i0e",
    "special_i1": "i1",
    "special_i1e": "i1e",
    "special_modified_bessel_i0": "i0",
    "special_modified_bessel_i1": "i1",
    "special_bessel_j0": "bessel_j0",
    "special_bessel_j1": "bessel_j1",
    "special_bessel_y0": "bessel_y0",
    "special_bessel_y1": "bessel_y1",
    "special_scaled_modified_bessel_k0": "bessel_k0e",
    "special_scaled_modified_bessel_k1": "bessel_k1e",
}


def _special(op: str) -> Any:
    return lambda c, x: c.op(op, c.cast(x, c.out_type.dtype))


for _name, _op in _OPS.items():
    add(_name, _special(_op))


@aten("special_modified_bessel_k0")
def bessel_k0(c: Any, x: Value) -> Value:
    return _bessel_k(c, x, "bessel_k0e")


@aten("special_modified_bessel_k1")
def bessel_k1(c: Any, x: Value) -> Value:
    return _bessel_k(c, x, "bessel_k1e")


def _bessel_k(c: Any, x: Value, scaled: str) -> Value:
    """`exp(-x)` times the scaled function, in f64."""
    dtype = c.out_type.dtype
    t = T(c, c.cast(x, dtype)).to("f64")
    return (t.op(scaled) * (-t).exp()).to(dtype).value


@aten("polygamma", "special_polygamma")
def polygamma(c: Any, n: int, x: Value) -> Value:
    x = c.cast(x, c.out_type.dtype)
    return c.op("digamma", x) if n == 0 else c.op("polygamma", x, n=n)


@aten("mvlgamma", "special_multigammaln")
def mvlgamma(c: Any, x: Value, p: int) -> Value:
    """`p (p - 1) / 4 log(pi) + sum(lgamma(x - j / 2))` for `j < p`."""
    dtype = c.out_type.dtype
    t = T(c, c.cast(x, dtype)).wide()
    total = t.op("lgamma")
    for j in range(1, p):
        total = total + (t - j / 2).op("lgamma")
    return (total + p * (p - 1) / 4 * math.log(math.pi)).to(dtype).value


@aten("special_spherical_bessel_j0")
def spherical_bessel_j0(c: Any, x: Value) -> Value:
    """`sin(x) / x`, by its series near 0; 0 at infinity."""
    dtype = c.out_type.dtype
    t = T(c, c.cast(x, dtype)).to("f64")
    square = t * t
    near = T(c, c.scalar(0.0, "f64"))
    for k in range(7, -1, -1):  # (-1)^k x^(2k) / (2k + 1)!
        near = near * square + (-1) ** k / math.factorial(2 * k + 1)
    far = t.op("isinf").where(0.0, t.op("sin") / t)
    return t.abs().le(0.5).where(near, far).to(dtype).value
