"""Strided tensors as the copy engine sees them: which views have a descriptor, and where a tile lies in it.

A descriptor has a base aligned to 16 bytes, up to five sizes, and strides that are multiples of 16 bytes, the innermost
one element. A view that starts elsewhere in its buffer starts at coordinates: `x[:, 768:1536]` of `x: [512, 2304]` has
sizes (1536, 512) and begins at (768, 0). Elements beyond the sizes are read as zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ....dialects import dims
from ....dialects.dims import Dim
from ...loops.strided_view import merge
from ..lane_places import divisible

MOST_DIMS = 5
ALIGN_BYTES = 16


@dataclass(frozen=True)
class Matrix:
    """Matrices of `rows` by `k` elements in a buffer, one for each index of `batch`.

    Element (b, r, c) is `offset + sum(b * batch_strides) + r * row_stride + c * k_stride`. `turned` if the rows are
    the innermost dimension, else K is.
    """

    offset: Dim
    batch: tuple[Dim, ...]
    batch_strides: tuple[Dim, ...]
    rows: Dim
    k: Dim
    row_stride: Dim
    k_stride: Dim
    type: str  # the descriptor's
    bytes: int  # of an element
    turned: bool = False

    def entry(self, base: str, box: Sequence[int], swizzle: int = 128) -> dict[str, Any]:
        """The descriptor's data (docs/contracts.md, section 11); `box` is of the two inner dimensions."""
        starts, sizes, strides = _place(self)
        return {
            "base": base,
            "type": self.type,
            "sizes": [a + n for a, n in zip(starts, sizes)],
            "strides": [s * self.bytes for s in strides[1:]],
            "box": [*box, *[1] * (len(sizes) - 2)],
            "swizzle": swizzle,
        }

    def coordinates(self, batch: Dim, row: Dim, k: Dim) -> list[Dim]:
        """Where the tile at (batch, row, k) begins, innermost first; `batch` counts all indices of `batch` row-major."""
        starts = _place(self)[0]
        inner = [row, k] if self.turned else [k, row]
        places = [*inner, *_batch_places(self, batch)]
        return [p + s for p, s in zip(places, starts)]

    def element(self, batch: Dim, row: Dim, k: Dim) -> Dim:
        """Where element (batch, row, k) lies in the buffer; `batch` counts all indices of `batch` row-major."""
        strides = [s for _, s in reversed(_outer(self))]
        outer = sum((i * s for i, s in zip(_batch_places(self, batch), strides)))
        return self.offset + outer + row * self.row_stride + k * self.k_stride


def readable(m: Matrix, may_turn: bool = True) -> Matrix | None:
    """`m` as the copy engine can read it, turned where it must be and may; else None."""
    unit, rows, k, row_stride, k_stride = ALIGN_BYTES // m.bytes, m.rows, m.k, m.row_stride, m.k_stride
    turned = k_stride != 1 and k != 1
    if turned and (not may_turn or (row_stride != 1 and rows != 1)):
        return None
    pitch = k_stride if turned else row_stride
    if (k if turned else rows) == 1:  # a dimension of size 1 may have any stride
        pitch = dims.ceildiv(rows if turned else k, unit) * unit
    if not divisible(pitch, unit) or pitch == 0 or not all(divisible(s, unit) for s in m.batch_strides):
        return None
    row_stride, k_stride = (1, pitch) if turned else (pitch, 1)
    made = replace(m, row_stride=row_stride, k_stride=k_stride, turned=turned)
    place = _place(made, check=True)
    # the innermost coordinate of a copy is of 16 bytes too
    return made if place is not None and place[0][0] % unit == 0 else None


def _outer(m: Matrix) -> list[tuple[Dim, Dim]]:
    """Size and stride of the batch dimensions that the descriptor has: none with stride 0."""
    together = merge(m.batch, m.batch_strides)
    if together is not None:
        return [together] if together[1] != 0 else []
    return [(n, s) for n, s in zip(m.batch, m.batch_strides) if s != 0 and n != 1]


def _batch_places(m: Matrix, batch: Dim) -> list[Dim]:
    together = merge(m.batch, m.batch_strides)
    if together is not None:
        return [batch] if together[1] != 0 else []
    places: list[Dim] = []
    for n, s in reversed(list(zip(m.batch, m.batch_strides))):
        if s != 0 and n != 1:
            places.append(dims.mod(batch, n))
        batch = dims.floordiv(batch, n)
    return places


def _place(m: Matrix, check: bool = False) -> Any:
    """Starts, sizes and strides of the descriptor's dimensions, innermost first; None if `check` and there are none."""
    inner = [(m.rows, 1), (m.k, m.k_stride)] if m.turned else [(m.k, 1), (m.rows, m.row_stride)]
    outer = list(reversed(_outer(m)))
    sizes = [n for n, _ in (*inner, *outer)]
    strides: list[Dim] = [s for _, s in (*inner, *outer)]
    if check and len(sizes) > MOST_DIMS:
        return None
    starts: list[Dim] = [0] * len(sizes)
    if m.offset != 0:
        if not isinstance(m.offset, int) or not all(isinstance(s, int) for s in strides):
            return None
        rest = m.offset
        for d in sorted(range(len(strides)), key=lambda d: -strides[d]):  # type: ignore[operator]
            starts[d], rest = divmod(rest, strides[d])  # type: ignore[operator]
    if check and _overlaps(starts, sizes, strides):
        return None
    return starts, sizes, strides


def _overlaps(starts: list[Dim], sizes: list[Dim], strides: list[Dim]) -> bool:
    """True if a dimension is known to reach into the next one's stride, as windows that overlap do."""
    ends = [(s, a + n) for a, n, s in zip(starts, sizes, strides) if n != 1]
    known = sorted((s, end) for s, end in ends if isinstance(s, int) and isinstance(end, int))
    return any(end * s > wider for (s, end), (wider, _) in zip(known, known[1:]))
