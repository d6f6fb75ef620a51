"""`Tensor`, the value that the linalg builder works on, and the index map of a broadcast operand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ...dialects.dims import Dim
from ...dialects.record import TensorType


class Tensor(NamedTuple):
    """A tensor at the linalg level: an SSA value and its type with symbolic sizes."""

    value: Any
    type: TensorType

    @property
    def dtype(self) -> str:
        return self.type.dtype

    @property
    def shape(self) -> tuple[Dim, ...]:
        return self.type.shape

    @property
    def rank(self) -> int:
        return len(self.type.shape)


def aligned(shape: Sequence[Dim], out: Sequence[Dim]) -> tuple[int | None, ...]:
    """The index map of an operand of `shape` broadcast to `out`: loop numbers, None for stretched dimensions."""
    skip = len(out) - len(shape)
    return tuple(skip + i if d == out[skip + i] else None for i, d in enumerate(shape))


def is_static(shape: Sequence[Dim]) -> bool:
    """True if no size is symbolic."""
    return all(isinstance(d, int) for d in shape)
