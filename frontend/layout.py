"""Where the elements of a strided tensor lie, in terms of a row-major buffer and view ops.

    dense       strides are a permutation of row-major ones:  buffer = x.permute(order), contiguous
    broadcast   some dims have stride 0:                      the rest is dense, then expand
    strided     anything else:                                a flat buffer, then as_strided

A graph record has row-major tensors only, so an input enters as its buffer followed by these views.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..dialects.dims import Dim
from ..dialects.strides import row_major


@dataclass(frozen=True)
class Layout:
    """How a tensor of `shape` is found in a row-major `buffer`.

    `order` lists the tensor's dims from the slowest to the fastest in memory, without the `broadcast` ones (stride 0);
    it is None for general strides, where `buffer` is flat and `strides` give the element.
    """

    shape: tuple[Dim, ...]
    strides: tuple[Dim, ...]
    buffer: tuple[Dim, ...]
    order: tuple[int, ...] | None
    broadcast: tuple[int, ...] = ()

    @property
    def dense(self) -> bool:
        """True if every element has its own place and there are no gaps."""
        return self.order is not None and not self.broadcast

    @property
    def contiguous(self) -> bool:
        """True if the buffer is the tensor itself."""
        return self.dense and self.order == tuple(range(len(self.shape)))


def contiguous(shape: Sequence[Dim]) -> Layout:
    """A row-major tensor of `shape`."""
    shape = tuple(shape)
    return Layout(shape, row_major(shape), shape, tuple(range(len(shape))))


def layout_of(shape: Sequence[Dim], strides: Sequence[Dim], hints: Sequence[int | None]) -> Layout:
    """Classify strides; `hints` are their values at trace time (None: unknown), which suggest the order.

    What the hints suggest is checked on the expressions, so a wrong hint costs speed, never a wrong answer.
    """
    shape, strides = tuple(shape), tuple(strides)
    if any(size == 0 for size in shape) or _is_dense(shape, strides, range(len(shape))):
        return Layout(shape, strides, shape, tuple(range(len(shape))))
    broadcast = tuple(i for i, (n, s) in enumerate(zip(shape, strides)) if s == 0 and n != 1)
    kept = [i for i in range(len(shape)) if i not in broadcast]
    # size-1 dims lie anywhere: leave them next to their logical neighbour by giving them its stride
    keys: dict[int, int] = {}
    following = 1
    for i in reversed(kept):
        following = (hints[i] or 1) if shape[i] != 1 else following
        keys[i] = following
    order = sorted(kept, key=lambda i: (-keys[i], i))
    if _is_dense(shape, strides, order):
        return Layout(shape, strides, tuple(shape[i] for i in order), tuple(order), broadcast)
    extent: Dim = 1
    for size, stride in zip(shape, strides):
        extent = extent + (size - 1) * stride
    return Layout(shape, strides, (extent,), None)


def _is_dense(shape: Sequence[Dim], strides: Sequence[Dim], order: Sequence[int]) -> bool:
    step: Dim = 1
    for i in reversed(order):
        if shape[i] == 1:
            continue
        if strides[i] != step:
            return False
        step = step * shape[i]
    return True
