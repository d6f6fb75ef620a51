"""Writes at positions along one dim, into a copy of a tensor (in place, where the reinplace pass ties them).

Duplicate positions are combined in row-major order of the updates, so results do not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..dims import Dim, product
from ..dtypes import is_float, is_int
from ..lazy import np, pt
from ..op import Attr, Op, Operand, Result, check, normalize_dim, sample
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


# updates that a GPU sorts: each of its blocks reads the digit counts of all tiles, 128 KB of these
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
