"""Sort keys: every element as an unsigned integer whose order is torch's, with its position beside or inside it.

Floats become integers of the same order: `-0` and `0` are one key, every NaN is the largest. A 32-bit key and the position
share one u64, which makes all entries different and any sort of them stable; 64-bit keys have their positions in a second
array. A descending order inverts the keys only, so equal elements keep their order.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...dialects.dims import Dim
from ...dialects.dtypes import DTYPES
from ..linalg.scalar_core import Scalar, kind
from .kernel import DirectKernel, Scalars


def is_packed(dtype: str) -> bool:
    """True if key and position fit one u64."""
    return DTYPES[dtype].bytes <= 4


def entry_dtypes(dtype: str) -> tuple[str, ...]:
    """The element types of the arrays that hold entries: (key and position) or (key, position)."""
    return ("u64",) if is_packed(dtype) else ("u64", "u64")


def entry(s: Scalars, element: Scalar, position: Scalar, descending: bool) -> tuple[Scalar, ...]:
    """The entry of an element, one scalar per array."""
    key, at = order_key(s, element, descending), s.cast(position, "u64")
    if key.dtype == "u64":
        return key, at
    return (s.bitwise_or(s.emit("arith.shli", (s.cast(key, "u64"), s.const(32, "u64")), "u64"), at),)


def order_key(s: Scalars, x: Scalar, descending: bool) -> Scalar:
    """The key alone, u32 or u64."""
    return s.bitwise_not(_key(s, x)) if descending else _key(s, x)


def entry_key(s: Scalars, entry: Sequence[Scalar]) -> Scalar:
    """The key in an entry, as order_key gave it."""
    if len(entry) > 1:
        return entry[0]
    return s.cast(s.emit("arith.shrui", (entry[0], s.const(32, "u64")), "u64"), "u32")


def entry_position(s: Scalars, entry: Sequence[Scalar]) -> Scalar:
    """The position in an entry, as an `index`."""
    at = entry[1] if len(entry) > 1 else s.bitwise_and(entry[0], 0xFFFFFFFF)
    return s.cast(at, "index")


def load_entry(k: DirectKernel, arrays: Sequence, at: Dim) -> tuple[Scalar, ...]:
    """Entry number `at`."""
    return tuple(k.load(a, at, "u64") for a in arrays)


def put_entry(k: DirectKernel, arrays: Sequence, at: Dim, entry: Sequence[Scalar]) -> None:
    """Write entry number `at`."""
    for a, v in zip(arrays, entry):
        k.put(a, at, v)


def insert_entry(k: DirectKernel, arrays: Sequence, low: Dim, at: Scalar, entry: Sequence[Scalar]) -> None:
    """Put `entry` into the sorted entries `low .. at - 1`, the larger ones moving up to `at`."""
    b = k.b

    def larger_before(j: Scalar) -> Scalar:
        s = k.s
        before = b.bind_fresh(s.maximum(s.sub(j, 1), Scalar(b.dim(low), "index")).value)
        larger = s.gt(k.load(arrays[0], before, "u64"), entry[0])
        return s.bitwise_and(s.gt(j, Scalar(b.dim(low), "index")), larger)

    def move_up(j: Scalar) -> list[Scalar]:
        here = b.bind_fresh(j.value)
        put_entry(k, arrays, here, load_entry(k, arrays, here - 1))
        return [k.s.sub(j, 1)]

    (place,) = k.while_loop([at], larger_before, move_up)
    put_entry(k, arrays, b.bind_fresh(place.value), entry)


def _key(s: Scalars, x: Scalar) -> Scalar:
    x = s.extend(x)
    size = 8 if DTYPES[x.dtype].bytes == 8 else 4
    signed, unsigned, top = f"i{8 * size}", f"u{8 * size}", 1 << (8 * size - 1)
    if kind(x.dtype) == "uint":
        return s.cast(x, unsigned)
    if kind(x.dtype) == "int":
        return s.bitwise_xor(Scalar(s.cast(x, signed).value, unsigned), top)
    bits = s.emit("arith.bitcast", (s.add(x, 0.0),), signed)  # + 0.0 makes -0 the same key as 0
    # negative floats order backwards: flip all their bits, of the others the sign only
    sign = s.emit("arith.shrsi", (bits, s.const(8 * size - 1, signed)), signed)
    flip = s.bitwise_or(Scalar(sign.value, unsigned), top)
    key = s.bitwise_xor(Scalar(bits.value, unsigned), flip)
    return s.select(s.isnan(x), s.const(-1, unsigned), key)
