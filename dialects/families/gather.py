"""Elements at computed indices. An index out of range is a run-time check, and then reads a safe place."""

from __future__ import annotations

from ..dtypes import is_int
from ..lazy import np, pt
from ..op import Attr, Ints, Op, Operand, OpError, Result, Variadic, broadcast, check, normalize_dim, sample
from ..record import TensorType
from ..status import GATHER_OUT_OF_RANGE, INDEX_OUT_OF_RANGE


def within(*limits: int, dtype: str = "int64", shape: tuple[int, ...] = (4,), low: int = 0):
    """A sample operand: random indices of `shape` in `low .. limits[0] - 1`."""
    return lambda rng: rng.integers(low, limits[0], shape).astype(dtype)


def _is_index(x: TensorType) -> None:
    check(is_int(x.dtype), f"an index is an integer tensor, got {x}")


class Gather(Op, name="gather", category="gather"):
    """`y[i, j, …] = x[i, index[i, j, …], …]` along `dim`; `index` may be smaller than `x` in the other dims.

    Negative indices are out of range.
    """

    x: Operand
    index: Operand
    dim: Attr[int]
    y: Result

    samples = (
        sample((3, 5), within(5, shape=(3, 2)), dim=1),
        sample((3, 5), within(3, shape=(4, 2)), dim=0),
        sample(("i32", (5,)), within(5, shape=(7,), dtype="int32"), dim=0),
        sample((), within(1, shape=()), dim=0),
    )

    @staticmethod
    def infer(x, index, dim):
        _is_index(index)
        dim = normalize_dim(dim, x.rank)
        check(x.rank == index.rank, f"x has rank {x.rank}, the index {index.rank}")
        for i, (have, want) in enumerate(zip(x.shape, index.shape)):
            fits = i == dim or not (isinstance(have, int) and isinstance(want, int)) or want <= have
            check(fits, f"index size {want} exceeds {have} in dim {i}")
        return TensorType(x.dtype, index.shape)

    @staticmethod
    def torch(x, index, dim):
        return pt.gather(x, dim, index.long())

    @staticmethod
    def reference(x, index, dim):
        if x.ndim == 0:
            return x.copy()
        grid = list(np.meshgrid(*(np.arange(n) for n in index.shape), indexing="ij"))
        grid[dim] = index
        return x[tuple(grid)]

    @staticmethod
    def lower(b, x, index, dim):
        dim = normalize_dim(dim, x.rank)

        def body(s, i):
            at = [s.index(k) for k in range(x.rank)]
            if x.rank:
                at[dim] = s.position(i, x.shape[dim], wrap=False, text=GATHER_OUT_OF_RANGE.text)
            return s.read(x, at)

        return b.map(body, index, dtypes=x.dtype)


class Index(Op, name="index", category="gather"):
    """`x[…, indices, …]`: the indices, broadcast together, select along `dims` (sorted), one index per dim.

    The broadcast dims stand where the indexed dims were if these are adjacent, else first (as torch and numpy).
    Negative indices count from the end if `wrap`. Those that are not `checked` are known to lie within their dims.
    """

    x: Operand
    indices: Variadic
    dims: Attr[Ints]
    wrap: Attr[bool] = True
    checked: Attr[bool] = True
    y: Result

    samples = (
        sample((5, 4), within(5, low=-5), dims=(0,)),
        sample((5, 4), within(4, shape=(2, 3)), dims=(1,)),
        sample((5, 4, 3), within(5), within(4), dims=(0, 1)),
        sample((5, 4, 3), within(5), within(3, shape=(2, 1)), dims=(0, 2)),
        sample(("bool", (6,)), within(6, shape=(), dtype="int32"), dims=(0,)),
        sample((2, 5, 4, 3), within(5, shape=(2, 1)), within(4, shape=(1, 3)), dims=(1, 2), wrap=False),
        sample((4, 5), within(5, shape=(9,), dtype="int32"), dims=(1,), wrap=False, checked=False),
        sample((4, 5), within(4, shape=(3,), low=-4), dims=(0,), checked=False),
    )

    @staticmethod
    def infer(x, indices, dims, wrap, checked):
        check(len(indices) == len(dims) and len(dims) > 0, f"{len(indices)} indices for dims {list(dims)}")
        check(list(dims) == sorted(set(dims)), f"dims are sorted, got {list(dims)}")
        for i, d in zip(indices, dims):
            _is_index(i)
            check(0 <= d < x.rank, f"dim {d} of {x}")
        return TensorType(x.dtype, index_shape(x.shape, broadcast(*(i.shape for i in indices)), dims))

    @staticmethod
    def torch(x, *indices, dims, wrap, checked):
        return x[_subscript(x.ndim, [i.long() for i in indices], dims)]

    @staticmethod
    def reference(x, indices, dims, wrap, checked):
        return x[_subscript(x.ndim, indices, dims)]

    @staticmethod
    def lower(b, x, indices, dims, wrap, checked):
        shape = broadcast(*(i.shape for i in indices))
        first = place(dims)
        out = index_shape(x.shape, shape, dims)

        def body(s, *given):
            kept = [k for k in range(len(out)) if not first <= k < first + len(shape)]
            others = iter(kept)
            chosen = dict(zip(dims, given))
            at = []
            for d in range(x.rank):
                if d in chosen:
                    at.append(s.position(chosen[d], x.shape[d], wrap, INDEX_OUT_OF_RANGE.text if checked else None))
                else:
                    at.append(s.index(next(others)))
            return s.read(x, at)

        maps = [_shifted(i.shape, shape, first) for i in indices]
        return b.generic(out, list(zip(indices, maps)), [x.dtype], body)


class Embedding(Op, name="embedding", category="gather"):
    """`y[…, :] = weight[index[…], :]`: rows of `weight`; a negative index is out of range."""

    weight: Operand
    index: Operand
    y: Result

    samples = (
        sample((7, 3), within(7, shape=(2, 4))),
        sample(("bf16", (7, 3)), within(7, dtype="int32")),
        sample((7, 3), within(7, shape=())),
    )

    @staticmethod
    def infer(weight, index):
        _is_index(index)
        if weight.rank != 2:
            raise OpError(f"weight is a matrix, got {weight}")
        return TensorType(weight.dtype, (*index.shape, weight.shape[1]))

    @staticmethod
    def torch(weight, index):
        return pt.nn.functional.embedding(index, weight)

    @staticmethod
    def reference(weight, index):
        return weight[index]

    @staticmethod
    def lower(b, weight, index):
        return Index.lower(b, weight, [index], (0,), wrap=False, checked=True)


def index_shape(x: tuple, shape: tuple, dims: tuple[int, ...]) -> tuple:
    """The shape of `index`: the dims of `x` that are not indexed, with the broadcast `shape` at its place."""
    kept = [d for i, d in enumerate(x) if i not in dims]
    at = place(dims)
    return (*kept[:at], *shape, *kept[at:])


def place(dims: tuple[int, ...]) -> int:
    """Where the broadcast dims stand: at the first indexed dim if the indexed dims are adjacent, else first."""
    return dims[0] if dims[-1] - dims[0] == len(dims) - 1 else 0


def _shifted(shape: tuple, full: tuple, first: int) -> tuple:
    skip = len(full) - len(shape)
    return tuple(first + skip + i if d == full[skip + i] else None for i, d in enumerate(shape))


def _subscript(rank: int, indices: list, dims: tuple[int, ...]) -> tuple:
    chosen = dict(zip(dims, indices))
    return tuple(chosen.get(d, slice(None)) for d in range(rank))
