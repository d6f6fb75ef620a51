"""Writes at indices that select along several dims, into a copy of a tensor (in place, where the reinplace pass ties them)."""

from __future__ import annotations

from typing import Any

from ..dims import Dim
from ..dtypes import is_int
from ..lazy import np, pt
from ..op import Attr, Ints, Op, Operand, Result, Variadic, broadcast, check, sample


def _indices(size, *shape):
    return lambda rng: rng.integers(0, size, shape)


class IndexPut(Op, name="index_put", category="direct"):
    """`y = x; y[:, i0, :, i1, …] = value` (or `+=` with `accumulate`): `indices` replace the dims `dims` of `x`.

    The indices broadcast against each other; in the updates' shape their dims stand where the indexed dims were if
    those are adjacent, else first, and `value` broadcasts to it. Negative indices count from the end.
    """

    x: Operand
    value: Operand
    indices: Variadic
    dims: Attr[Ints]
    accumulate: Attr[bool] = False
    y: Result

    numerics = "order"
    samples = (
        sample((5, 3), (4, 3), _indices(5, 4), dims=(0,)),
        sample((5, 3), (4, 3), _indices(5, 4), dims=(0,), accumulate=True),
        sample((4, 5, 3), (6,), _indices(4, 6), _indices(5, 6), _indices(3, 6), dims=(0, 1, 2)),
        sample((4, 5, 3), (4, 2, 3), lambda rng: rng.integers(-5, 5, (2, 1)), _indices(3, 3), dims=(1, 2), accumulate=True),
        sample((4, 5, 3), (6, 5), _indices(4, 6), _indices(3, 6), dims=(0, 2)),
        sample(("i64", (5, 3)), ("i64", (3,)), _indices(5, 4), dims=(0,), accumulate=True, low=-9, high=9),
        sample(("bool", (5, 3)), ("bool", (4, 3)), _indices(5, 4), dims=(0,), accumulate=True),
        sample((2, 4, 5), (), _indices(4, 3), dims=(1,)),
    )  # fmt: skip

    @staticmethod
    def infer(x, value, indices, dims, accumulate):
        check(x.dtype == value.dtype, f"x and value have types {x.dtype} and {value.dtype}; cast one")
        check(len(dims) == len(indices) > 0, f"{len(indices)} indices for {len(dims)} dims")
        check(all(is_int(i.dtype) for i in indices), "indices must be integer tensors")
        check(
            list(dims) == sorted(set(dims)) and dims[-1] < x.rank,
            f"dims {list(dims)} must ascend in a rank-{x.rank} tensor",
        )
        target = update_shape(x.shape, [i.shape for i in indices], dims)
        check(
            broadcast(value.shape, target) == target, f"value {list(value.shape)} does not broadcast to {list(target)}"
        )
        return x

    @staticmethod
    def torch(x, value, *indices, dims, accumulate=False):
        slots = [None] * x.ndim
        for d, i in zip(dims, indices):
            slots[d] = i
        return pt.ops.aten.index_put(x, slots, value, accumulate)

    @staticmethod
    def reference(x, value, indices, dims, accumulate):
        y = x.copy()
        target = update_shape(x.shape, [i.shape for i in indices], dims)
        place, index_rank = index_place(dims), max(i.ndim for i in indices)
        index = np.broadcast_arrays(*indices)
        value = np.broadcast_to(value, target)
        for at in np.ndindex(*target):
            inner = at[place : place + index_rank]
            rest = iter(at[:place] + at[place + index_rank :])
            where = tuple(int(index[dims.index(d)][inner]) if d in dims else next(rest) for d in range(x.ndim))
            y[where] = y[where] + value[at] if accumulate else value[at]
        return y


def index_place(dims: tuple[int, ...]) -> int:
    """Where the index dims stand in the updates' shape: at the first indexed dim if those are adjacent, else in front."""
    return dims[0] if dims[-1] - dims[0] == len(dims) - 1 else 0


def update_shape(x: tuple[Dim, ...], indices: list[tuple[Dim, ...]], dims: tuple[int, ...]) -> tuple[Any, ...]:
    """The shape of `x[…indices…]`."""
    rest = [s for d, s in enumerate(x) if d not in dims]
    place = index_place(dims)
    return (*rest[:place], *broadcast(*indices), *rest[place:])
