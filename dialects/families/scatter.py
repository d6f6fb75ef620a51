"""Writes at computed positions into a copy of a tensor (in place, where the reinplace pass ties them).

Duplicate positions are combined in row-major order of the updates, so results do not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..dims import Dim, product
from ..dtypes import is_float, is_int
from ..lazy import np, pt
from ..op import Attr, Dims, Ints, Op, Operand, Result, Variadic, broadcast, check, normalize_dim, sample
from ..record import TensorType
from ..status import GATHER_OUT_OF_RANGE, INDEX_OUT_OF_RANGE

REDUCTIONS = ("none", "add", "mul", "amax", "amin")


def _indices(size, *shape):
    return lambda rng: rng.integers(0, size, shape)


class Scatter(Op, name="scatter", category="direct"):
    """`y = x; y[…, index[i], …] = combine(y[…, index[i], …], src[i])` for every `i` of `index`, which replaces `i[dim]`.

    `reduce` is none (the last update wins), add, mul, amax or amin; without `include_self` the first update of a
    position replaces the value of `x`. Positions in dims other than `dim` are those of `i`. An index out of range is an
    error: of torch's `scatter` a RuntimeError, with `index_error` an IndexError, as of `index_copy`.
    """

    x: Operand
    index: Operand
    src: Operand
    dim: Attr[int]
    reduce: Attr[str] = "none"
    include_self: Attr[bool] = True
    index_error: Attr[bool] = False
    y: Result

    numerics = "order"
    samples = (
        sample((3, 5), _indices(5, 3, 4), (3, 4), dim=1),
        sample((4, 3), _indices(4, 7, 2), (8, 3), dim=0),
        sample((4, 3), _indices(4, 7, 3), (7, 3), dim=0, reduce="add"),
        sample((3, 4, 2), _indices(4, 3, 6, 2), (3, 6, 2), dim=1, reduce="mul"),
        sample((4, 3), _indices(4, 7, 3), (7, 3), dim=0, reduce="amax", include_self=False),
        sample((4, 3), _indices(4, 7, 3), (7, 3), dim=0, reduce="amin"),
        sample(("i64", (6,)), _indices(6, 9), ("i64", (9,)), dim=0, reduce="add", low=-9, high=9),
        sample(("bool", (4, 3)), _indices(4, 7, 3), ("bool", (7, 3)), dim=0, reduce="add"),
        sample((), _indices(1), (), dim=0),
    )

    @staticmethod
    def infer(x, index, src, dim, reduce, include_self, index_error):
        check(reduce in REDUCTIONS, f"reduce '{reduce}' is not one of {', '.join(REDUCTIONS)}")
        check(is_int(index.dtype), f"index must be an integer tensor, got {index.dtype}")
        check(x.dtype == src.dtype, f"x and src have types {x.dtype} and {src.dtype}; cast one")
        d = normalize_dim(dim, x.rank)
        check(index.rank == x.rank == src.rank, f"x, index and src have ranks {x.rank}, {index.rank} and {src.rank}")
        for i, size in enumerate(index.shape):
            check(_fits(size, src.shape[i]), f"index has size {size} in dim {i}, src only {src.shape[i]}")
            check(i == d or _fits(size, x.shape[i]), f"index has size {size} in dim {i}, x only {x.shape[i]}")
        return x

    @staticmethod
    def torch(x, index, src, dim, reduce="none", include_self=True, index_error=False):
        if reduce == "none":
            return pt.scatter(x, dim, index, src)
        names = {"add": "sum", "mul": "prod"}
        return pt.scatter_reduce(x, dim, index, src, names.get(reduce, reduce), include_self=include_self)

    @staticmethod
    def reference(x, index, src, dim, reduce, include_self, index_error):
        y, fresh = np.atleast_1d(x.copy()), np.ones(np.atleast_1d(x).shape, bool)
        index, src = np.atleast_1d(index), np.atleast_1d(src)
        for at in np.ndindex(index.shape):
            target = list(at)
            target[dim] = index[at]
            where = tuple(target)
            first = fresh[where] and not include_self
            y[where] = src[at] if first else _combine(reduce, y[where], src[at])
            fresh[where] = False
        return y.reshape(x.shape)


class Place(Op, name="place", category="pointwise"):
    """`scatter` of one update for each line along `dim`, as a choice of each element: computed with `x`, never in place."""

    x: Operand
    index: Operand
    src: Operand
    dim: Attr[int]
    reduce: Attr[str] = "none"
    index_error: Attr[bool] = False
    y: Result

    samples = (
        sample((3, 5), _indices(5, 3, 1), (3, 1), dim=1),
        sample(("bf16", (4, 3)), _indices(4, 1, 3), ("bf16", (1, 3)), dim=0, reduce="add"),
        sample(("i64", (2, 4)), _indices(4, 2, 1), ("i64", (2, 1)), dim=1, reduce="mul", low=-9, high=9),
        sample((2, 4), _indices(4, 2, 1), (2, 1), dim=-1, reduce="amax"),
        sample(("bool", (4,)), _indices(4, 1), ("bool", (1,)), dim=0),
    )

    @staticmethod
    def infer(x, index, src, dim, reduce, index_error):
        Scatter.infer(x, index, src, dim, reduce, True, index_error)
        d = normalize_dim(dim, x.rank)
        line = (*x.shape[:d], 1, *x.shape[d + 1 :])
        check(index.shape == src.shape == line, f"index and src are one element of each line of {x}")
        check(reduce == "none" or x.dtype != "bool", "combines no bool")
        return x

    torch = Scatter.torch

    @staticmethod
    def reference(x, index, src, dim, reduce, index_error):
        return Scatter.reference(x, index, src, dim, reduce, True, index_error)

    @staticmethod
    def lower(b, x, index, src, dim, reduce, index_error):
        d, text = normalize_dim(dim, x.rank), (INDEX_OUT_OF_RANGE if index_error else GATHER_OUT_OF_RANGE).text

        def body(s, old, i, new):
            here = s.eq(s.index(d), s.position(i, x.shape[d], wrap=False, text=text))
            return s.select(here, new if reduce == "none" else getattr(s, _SCALAR[reduce])(old, new), old)

        return b.map(body, x, index, src, dtypes=x.dtype)


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


class SliceScatter(Op, name="slice_scatter", category="direct"):
    """`y = x; y[starts[d] + steps[d] · i[d], …] = src[i]`: writes a whole strided block, one start and step per dim."""

    x: Operand
    src: Operand
    starts: Attr[Dims]
    steps: Attr[Ints]
    y: Result

    samples = (
        sample((5, 6), (2, 6), starts=(1, 0), steps=(1, 1)),
        sample((5, 6), (5, 2), starts=(0, 1), steps=(1, 3)),
        sample((4,), (0,), starts=(4,), steps=(1,)),
        sample((), (), starts=(), steps=()),
        sample(("bool", (5, 6)), ("bool", (2, 6)), starts=(3, 0), steps=(1, 1)),
    )

    @staticmethod
    def infer(x, src, starts, steps):
        check(x.dtype == src.dtype, f"x and src have types {x.dtype} and {src.dtype}; cast one")
        check(x.rank == src.rank == len(starts) == len(steps), f"needs a start and a step for each of {x.rank} dims")
        check(all(s > 0 for s in steps), "steps must be positive")
        for d, (size, start, step) in enumerate(zip(src.shape, starts, steps)):
            last = start + (size - 1) * step
            if isinstance(last, int) and isinstance(x.shape[d], int) and size != 0:
                check(
                    0 <= start and last < x.shape[d], f"writes {start}..{last} of dim {d}, which has size {x.shape[d]}"
                )
        return x

    @staticmethod
    def torch(x, src, starts, steps):
        y = x.clone()
        y[tuple(slice(s, s + n * t, t) for s, n, t in zip(starts, src.shape, steps))] = src
        return y

    @staticmethod
    def reference(x, src, starts, steps):
        y = x.copy()
        y[tuple(slice(s, s + n * t, t) for s, n, t in zip(starts, src.shape, steps))] = src
        return y

    @staticmethod
    def lower(b, x, src, starts, steps):
        empty = any(d == 0 for d in src.shape)  # MLIR refuses a block that starts at the end
        return b.map(lambda s, v: v, x) if empty else b.insert(src, x, starts, steps)


class Insert(SliceScatter, name="insert", category="concat"):
    """`slice_scatter` as a choice of each element from one tensor or the other: computed with them, never in place."""


def index_place(dims: tuple[int, ...]) -> int:
    """Where the index dims stand in the updates' shape: at the first indexed dim if those are adjacent, else in front."""
    return dims[0] if dims[-1] - dims[0] == len(dims) - 1 else 0


def update_shape(x: tuple[Dim, ...], indices: list[tuple[Dim, ...]], dims: tuple[int, ...]) -> tuple[Any, ...]:
    """The shape of `x[…indices…]`."""
    rest = [s for d, s in enumerate(x) if d not in dims]
    place = index_place(dims)
    return (*rest[:place], *broadcast(*indices), *rest[place:])


def _fits(size: Dim, limit: Dim) -> bool:
    """Whether `size ≤ limit`; unknown for symbols, then eager's guards have seen to it."""
    return not isinstance(size, int) or not isinstance(limit, int) or size <= limit


# the updates of one line that are computed with it: as many comparisons for each of its elements, and loads of all updates
# for each vector, which longer lines read from memory at the speed of a few
MOST_PLACED, MOST_OF_LONG, LONG_LINE = 8, 2, 1024


def placed(x: TensorType, index: TensorType, attributes: dict[str, Any]) -> int:
    """How many ops `place` a `scatter` with these operands is; 0 for too many, or where not all lines have as many updates."""
    if x.rank == 0 or (attributes["reduce"] != "none" and (x.dtype == "bool" or not attributes["include_self"])):
        return 0
    d = normalize_dim(attributes["dim"], x.rank)
    count, line = index.shape[d], x.shape[d]
    most = MOST_PLACED if isinstance(line, int) and line <= LONG_LINE else MOST_OF_LONG
    others = all(a == b for k, (a, b) in enumerate(zip(x.shape, index.shape)) if k != d)
    return count if others and isinstance(count, int) and count <= most else 0


# updates that a GPU sorts by comparing tiles of them; the searches in tiles grow as their square, to half of a radix sort's time
MOST_SORTED = 1 << 17


def sorts_rows(x: TensorType, indices: Sequence[TensorType], dims: tuple[int, ...]) -> bool:
    """True for an `index_put` that adds so few whole rows of `x`, of floats, that it is fast to sort them first."""
    sizes = (*x.shape, *(n for i in indices for n in i.shape))
    static = all(isinstance(n, int) for n in sizes) and is_float(x.dtype)
    return static and tuple(dims) == (0,) and product(indices[0].shape) <= MOST_SORTED  # type: ignore[operator]


def scatters_rows(x: TensorType, index: TensorType, attributes: dict[str, Any]) -> bool:
    """The same for a `scatter` whose index says one position for all of a row (as of `index_add`)."""
    if x.rank == 0 or attributes["reduce"] != "add" or not attributes["include_self"]:
        return False
    along_first = normalize_dim(attributes["dim"], x.rank) == 0 and index.shape[1:] == x.shape[1:]
    return along_first and sorts_rows(x, [TensorType(index.dtype, index.shape[:1])], (0,))


_SCALAR = {"add": "add", "mul": "mul", "amax": "maximum", "amin": "minimum"}  # the scalar function of each reduction


def _combine(reduce, old, new):
    match reduce:
        case "add":
            return old + new
        case "mul":
            return old * new
        case "amax":
            return np.maximum(old, new)
        case "amin":
            return np.minimum(old, new)
    return new
