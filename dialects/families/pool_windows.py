"""What poolings share as they are lowered: reads of a window's elements, and the larger of two with its position."""

from __future__ import annotations

from math import inf

from ..dtypes import bits, is_float


def lowest_of(dtype):
    """The identity of max in the element type called `dtype`."""
    if is_float(dtype):
        return -inf
    return -(2 ** (bits(dtype) - 1)) if dtype.startswith("i") else 0


def is_inside(s, places, spatial):
    """Whether a spatial position lies in `x`."""
    ok = None
    for place, size in zip(places, spatial):
        here = s.bitwise_and(s.ge(place, 0), s.lt(place, s.size(size)))
        ok = here if ok is None else s.bitwise_and(ok, here)
    return ok


def read_place(s, x, p, places, inside, other):
    """The element of `x` in plane `p[:2]` at `places`, or `other` where `inside` does not hold (None: it always does).

    Each place outside is moved to its own edge, so that windows of one row share rows, and their reads stay side by side.
    """
    if inside is None:
        return s.read(x, [*p[:2], *places])
    kept = [s.minimum(s.maximum(place, 0), s.sub(s.size(size), 1)) for place, size in zip(places, x.shape[2:])]
    return s.select(inside, s.read(x, [*p[:2], *kept]), other)


def keep_larger(s, x, p, places, inside, best, at):
    """The better of `(best, at)` and the element at `places`: the last NaN, else the first maximum, in any order."""
    value, here = _element(s, x, p, places, inside)
    first = s.bitwise_or(s.lt(at, 0), s.bitwise_and(s.eq(value, best), s.lt(here, at)))
    take = s.bitwise_or(s.gt(value, best), first)
    if is_float(x.dtype):
        # against a NaN the comparisons above are false, so a kept NaN yields only to a later one
        later = s.bitwise_or(s.bitwise_not(s.isnan(best)), s.gt(here, at))
        take = s.bitwise_or(take, s.bitwise_and(s.isnan(value), later))
    take = take if inside is None else s.bitwise_and(take, inside)
    return s.select(take, value, best), s.select(take, here, at)


def keep_larger_in_order(s, x, p, places, inside, best, at):
    """The same where elements come in order: the value does not depend on positions, which often nobody needs."""
    value, here = _element(s, x, p, places, inside)
    larger = s.gt(value, best)  # never outside, where the value is the lowest
    if is_float(x.dtype):
        larger = s.bitwise_or(larger, s.isnan(value))
    first = s.lt(at, 0) if inside is None else s.bitwise_and(s.lt(at, 0), inside)
    return s.maximum(best, value), s.select(s.bitwise_or(larger, first), here, at)


def _element(s, x, p, places, inside):
    """The element at `places`, the lowest value outside, and its flat position in the spatial plane."""
    flat = s.const(0, "index")
    for place, size in zip(places, x.shape[2:]):
        flat = s.add(s.mul(flat, s.size(size)), place)
    return read_place(s, x, p, places, inside, lowest_of(x.dtype)), s.cast(flat, "i64")
