"""Which elements of a buffer a view is: offset, shape and strides, in elements, with symbolic sizes.

The address of element `i` of a view is `offset + Σ i[d] * strides[d]` elements into its contiguous base buffer.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, overload

from . import dims
from .dims import Dim


class ViewError(ValueError):
    """A chain of view ops that no strides express; form_kernels must materialise it."""


@dataclass(frozen=True)
class View:
    """A strided window of a buffer."""

    offset: Dim
    shape: tuple[Dim, ...]
    strides: tuple[Dim, ...]

    @staticmethod
    def whole(shape: Sequence[Dim]) -> View:
        """All of a contiguous buffer of `shape`."""
        return _whole(tuple(shape))

    @property
    def contiguous(self) -> bool:
        """True if the elements lie side by side in row-major order; strides of dims of size 1 do not matter."""
        if self is _whole(self.shape):
            return True
        expected = row_major(self.shape)
        return all(s == e or size == 1 for s, e, size in zip(self.strides, expected, self.shape)) or 0 in self.shape

    def apply(self, op: str, attributes: dict[str, Any]) -> View:
        """The view after view op `op` (docs/contracts.md §2); ViewError if strides cannot say it."""
        apply = _APPLY.get(op)
        if apply is None:
            raise ViewError(f"lamina.{op} is no view")
        return apply(self, **attributes)


@overload
def row_major(shape: Sequence[int]) -> tuple[int, ...]: ...
@overload
def row_major(shape: Sequence[Dim]) -> tuple[Dim, ...]: ...
def row_major(shape: Sequence[Dim]) -> tuple[Dim, ...]:
    """Strides of a contiguous tensor: the product of the sizes behind each dim."""
    strides: list[Dim] = []
    step: Dim = 1
    for size in reversed(shape):
        strides.append(step)
        step = step * size
    return tuple(reversed(strides))


@functools.lru_cache(maxsize=4096)  # a graph has few shapes and many tensors
def _whole(shape: tuple[Dim, ...]) -> View:
    return View(0, shape, row_major(shape))


def _permute(view: View, dims: Sequence[int]) -> View:
    return View(view.offset, tuple(view.shape[d] for d in dims), tuple(view.strides[d] for d in dims))


def _expand(view: View, shape: Sequence[Dim]) -> View:
    new = len(shape) - len(view.shape)
    old = zip(view.shape, view.strides, shape[new:])
    strides = (0,) * new + tuple(0 if size == 1 and target != 1 else stride for size, stride, target in old)
    return View(view.offset, tuple(shape), strides)


def _slice(view: View, starts: Sequence[Dim], sizes: Sequence[Dim], steps: Sequence[int]) -> View:
    offset = view.offset
    for start, stride in zip(starts, view.strides):
        offset = offset + start * stride
    return View(offset, tuple(sizes), tuple(stride * step for stride, step in zip(view.strides, steps)))


def _as_strided(view: View, shape: Sequence[Dim], strides: Sequence[Dim], offset: Sequence[Dim]) -> View:
    if not view.contiguous:
        raise ViewError("as_strided of a tensor that is not contiguous")
    return View(view.offset + offset[0], tuple(shape), tuple(strides))


def _reshape(view: View, shape: Sequence[Dim]) -> View:
    """Split and merge dims where strides allow: dims merge while the outer stride is the inner stride times size."""
    shape = tuple(shape)
    if view.contiguous:
        return View(view.offset, shape, row_major(shape))
    old = [(size, stride) for size, stride in zip(view.shape, view.strides) if size != 1]
    new = list(shape)
    strides: list[Dim] = []
    while old:
        rest, unit = old.pop()
        while old and old[-1][1] == unit * rest:
            rest = rest * old.pop()[0]
        while new and rest != 1:
            size = new.pop()
            if size == 0 or dims.mod(rest, size) != 0:
                raise ViewError(f"reshape of {view.shape} with strides {view.strides} to {shape}")
            strides.append(unit)
            unit, rest = unit * size, dims.floordiv(rest, size)
        if rest != 1:
            raise ViewError(f"reshape of {view.shape} with strides {view.strides} to {shape}")
    strides += [1] * len(new)  # sizes left over are 1
    return View(view.offset, shape, tuple(reversed(strides)))


_APPLY = {"permute": _permute, "expand": _expand, "slice": _slice, "as_strided": _as_strided, "reshape": _reshape}
