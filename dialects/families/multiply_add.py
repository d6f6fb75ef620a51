"""`fma`: a product and a sum, rounded once."""

from __future__ import annotations

import math

from ..lazy import np, pt
from ..op import Op, Operand, Result, broadcast, check, sample
from ..record import TensorType
from .binary import same_dtype

_SPLIT = 2.0**27 + 1  # halves the digits of a double: Dekker, A floating-point technique for extending precision (1971)


class FusedMultiplyAdd(Op, name="fma", category="pointwise"):
    """`x y + z`, rounded once."""

    x: Operand
    y: Operand
    z: Operand
    r: Result

    samples = (
        sample((2, 3), (3,), (2, 1)),
        sample(("f64", (17,)), ("f64", ()), ("f64", (17,))),
        sample(lambda rng: _nearly(1, rng), lambda rng: _nearly(1, rng), lambda rng: _nearly(-1, rng)),
        sample(*(lambda rng, n=n: np.roll(np.array([0, -0.0, 1, math.inf, -math.inf, math.nan], "f4"), n) for n in range(3))),
    )  # fmt: skip

    @staticmethod
    def infer(x, y, z):
        dtype = same_dtype(x, y, z)
        check(dtype in ("f32", "f64"), f"takes f32 or f64, got {dtype}")
        return TensorType(dtype, broadcast(x.shape, y.shape, z.shape))

    @staticmethod
    def torch(x, y, z):
        return pt.addcmul(z, x, y)

    @staticmethod
    def reference(x, y, z):
        with np.errstate(all="ignore"):
            a, b, c = (np.asarray(v, np.float64) for v in (x, y, z))
            product = a * b
            total = product + c
            exact = total + (_lost_in_product(a, b, product) + _lost_in_sum(product, c, total))
            return np.where(np.isfinite(exact), exact, total).astype(x.dtype)

    @staticmethod
    def lower(b, x, y, z):
        return b.map(lambda s, x, y, z: s.multiply_add(x, y, z), x, y, z)


def _nearly(number, rng):
    """Numbers so near to `number` that only the rounding decides what is left of `1 * 1 - 1`."""
    return (number + rng.uniform(-1e-4, 1e-4, 33)).astype(np.float32)


def _lost_in_product(a, b, product):
    """`a b - product`, exactly (Dekker's product)."""
    high = [v * _SPLIT - (v * _SPLIT - v) for v in (a, b)]
    low = [v - h for v, h in zip((a, b), high)]
    return low[0] * low[1] - (((product - high[0] * high[1]) - low[0] * high[1]) - high[0] * low[1])


def _lost_in_sum(a, b, total):
    """`a + b - total`, exactly (Knuth's sum)."""
    other = total - a
    return (a - (total - other)) + (b - other)
