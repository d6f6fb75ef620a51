"""Iteration spaces of kernels: which element of a kernel's space a value's element belongs to.

A space is a shape, some of whose dims may be reduced. The *axes* of a value in a space say, per dim of the value, which
dim of the space it runs along, or None where the value does not vary (size 1 or stretched):

    space [B, S, D], D reduced     x: (0, 1, 2)     sum(x, keepdim): (0, 1, None)     sum(x): (0, 1)
                                   expand of the sum back to [B, S, D]: (0, 1, None)

An op may join a kernel when every value that it reads from the kernel is read at the same point of the space.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from ...dialects.dims import Dim
from ...dialects.op import normalize_dim
from .dataflow import Node

Shape = tuple[Dim, ...]
Axes = tuple["int | None", ...]


def full_axes(space: Shape) -> Axes:
    """The axes of a value that has the shape of the space."""
    return tuple(None if size == 1 else i for i, size in enumerate(space))


def reduced_axes(space: Shape, reduced: frozenset[int], shape: Shape) -> Axes | None:
    """The axes of a per-row result: `space` with the reduced dims 1 or left out; None for any other shape."""
    axes = full_axes(space)
    if shape == tuple(1 if i in reduced else d for i, d in enumerate(space)):
        return tuple(None if i in reduced else a for i, a in enumerate(axes))
    if shape == tuple(d for i, d in enumerate(space) if i not in reduced):
        return tuple(a for i, a in enumerate(axes) if i not in reduced)
    return None


def through_view(node: Node, axes: Axes, shape: Shape, result: Shape) -> Axes | None:
    """The axes of a view's result from those of its operand; None where the view moves elements."""
    match node.name:
        case "permute":
            return tuple(axes[d] for d in node.attributes["dims"])
        case "expand":
            skip = len(result) - len(shape)
            kept = (axes[i] if shape[i] == result[skip + i] else None for i in range(len(shape)))
            return (None,) * skip + tuple(kept)
        case "reshape":
            old = [i for i, d in enumerate(shape) if d != 1]
            new = [i for i, d in enumerate(result) if d != 1]
            if [shape[i] for i in old] != [result[i] for i in new]:
                return None
            moved = dict(zip(new, old))
            return tuple(axes[moved[i]] if i in moved else None for i in range(len(result)))
        case "slice":
            whole = shape == result and all(s == 0 for s in node.attributes["starts"])
            return axes if whole and all(s == 1 for s in node.attributes["steps"]) else None
    return None


@dataclass(frozen=True)
class Part:
    """A dim of a space, or a part of one: its size, and the distance of its elements in the space, row by row."""

    size: int
    distance: int


def parts_of(space: Shape) -> list[list[Part]] | None:
    """Each dim of a static space as what it consists of: itself."""
    if not all(isinstance(size, int) for size in space):
        return None
    sizes = [size for size in space if isinstance(size, int)]
    return [[Part(size, prod(sizes[i + 1 :]))] for i, size in enumerate(sizes)]


def parts_through_view(node: Node, parts: list[list[Part]], result: Shape) -> list[list[Part]] | None:
    """What the dims of a view's result consist of, from those of its operand; None for other views than these two."""
    if node.name == "permute":
        return [parts[d] for d in node.attributes["dims"]]
    if node.name != "reshape":
        return None
    rest = [p for dim in reversed(parts) for p in reversed(dim) if p.size != 1]
    made: list[list[Part]] = []
    for size in result:
        dim: list[Part] = []
        while isinstance(size, int) and size > 1:
            part = rest.pop()
            if size % part.size and part.size % size:
                return None
            outer = min(size, part.size)
            if outer < part.size:
                rest.append(Part(part.size // outer, part.distance))
            dim.append(Part(outer, part.distance * (part.size // outer)))
            size //= outer
        made.append(dim)
    return made


def pointwise_axes(operands: Sequence[tuple[Axes, Shape]], result: Shape) -> Axes | None:
    """The axes of a broadcasting op's result from those of the operands in the space; None where they disagree."""
    axes: list[int | None] = [None] * len(result)
    for given, shape in operands:
        skip = len(result) - len(shape)
        for i, a in enumerate(given):
            j = skip + i
            if a is None:
                continue
            if shape[i] != result[j] or axes[j] not in (None, a):
                return None
            axes[j] = a
    return tuple(axes)


def covers_space(axes: Axes, space: Shape, result: Shape) -> bool:
    """True if a value of shape `result` with these axes lies along the whole space, element by element."""
    return result == space and all(a in (None, i) for i, a in enumerate(axes))


def turns_space(axes: Axes, space: Shape, result: Shape) -> bool:
    """True if a value of shape `result` is the whole space with its dims in another order (those of size 1 do not count)."""
    named = [a for a in axes if a is not None]
    if sorted(named) != [i for i, size in enumerate(space) if size != 1]:
        return False
    return all(n == (1 if a is None else space[a]) for a, n in zip(axes, result))


def covers_rows(axes: Axes, space: Shape, reduced: frozenset[int], result: Shape) -> bool:
    """True if a value has exactly one element per row, the rows in order."""
    named = [a for a in axes if a is not None]
    rows = [i for i, size in enumerate(space) if i not in reduced and size != 1]
    return named == rows and all(size == 1 for a, size in zip(axes, result) if a is None)


def reduction_space(node: Node, shape: Shape) -> frozenset[int] | None:
    """The dims that a reduction or row op reduces of its first operand's `shape`; None if it has no such form."""
    attributes = node.attributes
    if node.category == "row":
        if isinstance(attributes.get("dim"), int):
            return frozenset({normalize_dim(attributes["dim"], len(shape))} if shape else ())
        count = attributes.get("dims")
        return frozenset(range(len(shape) - count, len(shape))) if isinstance(count, int) else None
    dims = attributes.get("dims")
    if not isinstance(dims, tuple):
        return None
    return frozenset(normalize_dim(d, len(shape)) for d in dims) if shape else frozenset()


def is_trailing(space: Shape, reduced: frozenset[int]) -> bool:
    """True if the reduced dims are the innermost ones (dims of size 1 do not count)."""
    sized = [i for i, size in enumerate(space) if size != 1]
    inner = [i for i in sized if i in reduced]
    return sized[len(sized) - len(inner) :] == inner
