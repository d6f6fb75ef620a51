"""ATen's Chebyshev polynomials of tensors of degrees, by their trigonometric forms, computed in f64.

With `x = cos a` inside [-1, 1], `|x| = cosh a` outside, and C, S the circular or hyperbolic functions there:

    T_n = C(n a)                        U_n = S((n + 1) a) / S(a)
    V_n = C((n + 1/2) a) / C(a / 2)     W_n = S((n + 1/2) a) / S(a / 2)

where U_n(1) = n + 1 and W_n(1) = 2n + 1. For negative `x` all change sign with odd `n`, and V and W change places.
A polynomial of a negative degree is 0; shifted ones take `2x - 1`.
"""

from __future__ import annotations

from typing import Any

from .promotion import as_value
from .registry import Value, add
from .tensor_math import T


def _right_half(r: T, n: T, kind: str) -> T:
    """The polynomial `kind` of degrees `n` at `r >= 0`."""
    inside = r.le(1.0)
    circular = r.op("minimum", 1.0).op("acos")
    hyperbolic = r.op("maximum", 1.0).op("acosh")
    sine = kind in "uw"
    numerator, denominator = {"t": (n, None), "u": (n + 1.0, 1.0), "v": (n + 0.5, 0.5), "w": (n + 0.5, 0.5)}[kind]

    def branch(angle: T, name: str) -> T:
        top = (numerator * angle).op(name)
        return top if denominator is None else top / (angle * denominator).op(name)

    made = inside.where(branch(circular, "sin" if sine else "cos"), branch(hyperbolic, "sinh" if sine else "cosh"))
    return r.eq(1.0).where(numerator / denominator, made) if sine and denominator is not None else made


def _chebyshev(kind: str, shifted: bool) -> Any:
    mirrored = {"v": "w", "w": "v"}.get(kind, kind)

    def convert(c: Any, x: Any, n: Any) -> Value:
        dtype = c.out_type.dtype
        # eager rounds `2x - 1` to its own type
        point = T(c, as_value(c, x, dtype))
        point = (point + point - 1.0 if shifted else point).to("f64")
        degree = T(c, as_value(c, n, dtype)).to("f64").op("trunc")
        r = point.abs()
        odd = (degree - (degree * 0.5).op("floor") * 2.0).ne(0.0)
        left = _right_half(r, degree, mirrored)
        value = point.lt(0.0).where(odd.where(-left, left), _right_half(r, degree, kind))
        known = degree.op("ge", 0.0) & degree.lt(2.0**63)
        return known.where(value, 0.0).to(dtype).value

    return convert


for _kind in "tuvw":
    for _shifted in (False, True):
        for _overload in ("default", "x_scalar", "n_scalar"):
            _name = f"special_{'shifted_' if _shifted else ''}chebyshev_polynomial_{_kind}.{_overload}"
            add(_name, _chebyshev(_kind, _shifted))
