"""Emit index_put: a copy of `x`, then the updates in row-major order of the indices.

The dims that no index replaces are the work items, as in scatter.
"""

from __future__ import annotations

from collections.abc import Sequence

from mlir import ir

from ...dialects.dims import Dim, product
from ...dialects.families.index_put import index_place
from ...dialects.op import broadcast
from ..linalg.scalar_core import Scalar
from .kernel import DirectKernel, grain
from .scatter import segments, unless


def index_put(k: DirectKernel) -> tuple[Dim, Dim]:
    """`y[…, indices, …] = value`, or `+= value`."""
    x, value, indices = k.operands["x"], k.operands["value"], k.operands["indices"]
    dims, accumulate, dtype = tuple(k.attributes["dims"]), bool(k.attributes["accumulate"]), k.dtype(x)
    shape = k.shape(x)
    updates = broadcast(*(k.shape(i) for i in indices))
    inner_axes = range(dims[-1] + 1, len(shape))
    outer_axes = [a for a in range(dims[-1]) if a not in dims]
    outer, inner = product(shape[a] for a in outer_axes), product(shape[a] for a in inner_axes)
    sizes = [shape[a] for a in dims]
    same = k.same_buffer(x, "y")
    (y,) = k.outputs["y"]
    with segments(k, outer, inner) as (o, low, high):
        fixed = dict(zip(outer_axes, k.ranges.delinearize(o, [shape[a] for a in outer_axes])))

        def place(positions: Sequence[Dim], c: Dim) -> tuple[Dim, ...]:
            """The index in `x` of `positions` along `dims`, column `c` of this segment."""
            back = k.ranges.delinearize(c, [shape[a] for a in inner_axes])
            at = {**fixed, **dict(zip(dims, positions)), **dict(zip(inner_axes, back))}
            return tuple(at[a] for a in range(len(shape)))

        def copy() -> None:
            with k.loops(sizes) as positions, k.loop(inner, low, high) as c:
                at = place(positions, c)
                k.put(y, k.ranges.linearize(at, shape), k.read(x, at))

        unless(k, same, copy)
        with k.loops(updates) as t:
            found, ok = _positions(k, indices, t, sizes)

            def write() -> None:
                with k.loop(inner, low, high) as c:
                    at = place(found, c)
                    flat = k.ranges.linearize(at, shape)
                    new = k.read(value, _aligned(_target(at, t, dims), k.shape(value)))
                    if accumulate:
                        old = k.load(y, flat, dtype)
                        s = k.s
                        new = s.bitwise_or(old, new) if k.is_bool(x) else s.add(old, new)
                    k.put(y, flat, new)

            k.when(ok, write)
    return outer * inner, grain(product(sizes) + product(updates) * 2)


def _positions(k: DirectKernel, indices: Sequence[ir.Value], t, sizes) -> tuple[list[Dim], ir.Value]:
    """Where update `t` goes along each indexed dim, and whether all of it is in range."""
    found: list[Dim] = []
    inside: ir.Value | None = None
    for index, size in zip(indices, sizes):
        at, ok = k.valid(k.read(index, _aligned(t, k.shape(index))), size, wrap=True)
        found.append(at)
        inside = ok if inside is None else k.s.bitwise_and(Scalar(inside, "bool"), Scalar(ok, "bool")).value
    assert inside is not None
    return found, inside


def _target(at: Sequence[Dim], t: Sequence[Dim], dims: tuple[int, ...]) -> tuple[Dim, ...]:
    """The index in the updates' shape: the unindexed dims, with the indices' dims in their place."""
    rest = [i for a, i in enumerate(at) if a not in dims]
    place = index_place(dims)
    return (*rest[:place], *t, *rest[place:])


def _aligned(index: Sequence[Dim], shape: Sequence[Dim]) -> tuple[Dim, ...]:
    """The index in an operand of `shape` that is broadcast to where `index` is."""
    skip = len(index) - len(shape)
    return tuple(0 if n == 1 else index[skip + i] for i, n in enumerate(shape))
