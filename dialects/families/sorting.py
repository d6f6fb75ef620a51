"""Sorting along a dim. NaN is larger than every number; equal elements keep their order."""

from __future__ import annotations

from typing import Any

from ..dims import Dim
from ..dtypes import DTYPES, FLOAT8
from ..lazy import np, pt
from ..op import Attr, Op, Operand, Result, check, normalize_dim, sample
from ..record import TensorType


def _tied(*shape):
    """An array maker whose elements repeat and hold NaN and both zeros."""
    return lambda rng: rng.choice(np.array([1, 2, 3, np.nan, -0.0, 0.0, -np.inf, np.inf], np.float32), shape)


class Sort(Op, name="sort", category="direct"):
    """The elements along `dim` in ascending (`descending`: reverse) order, and where they came from; always stable."""

    x: Operand
    dim: Attr[int] = -1
    descending: Attr[bool] = False
    stable: Attr[bool] = True
    values: Result
    indices: Result

    samples = (
        sample((3, 7), dim=-1),
        sample((3, 40, 2), dim=1, descending=True),
        sample(_tied(4, 33), dim=1),
        sample(_tied(4, 33), dim=1, descending=True),
        sample((), dim=0),
        sample(("i64", (2, 9)), dim=1, low=-3, high=3),
        sample(("u8", (2, 9)), dim=1, low=0, high=255),
        sample(("bool", (2, 9)), dim=1, descending=True),
        sample(("bf16", (2, 16)), dim=1),
    )

    @staticmethod
    def infer(x, dim, descending, stable):
        normalize_dim(dim, x.rank)
        return x, TensorType("i64", x.shape)

    @staticmethod
    def torch(x, dim=-1, descending=False, stable=True):
        return pt.sort(x, dim=dim, descending=descending, stable=True)

    @staticmethod
    def reference(x, dim, descending, stable):
        return _sorted(x, dim, descending)


class TopK(Op, name="topk", category="direct"):
    """The `k` largest (or smallest) elements along `dim` in order, and where they are; the first of equal ones."""

    x: Operand
    k: Attr[int]
    dim: Attr[int] = -1
    largest: Attr[bool] = True
    sorted: Attr[bool] = True
    values: Result
    indices: Result

    samples = (
        sample((3, 17), k=4, dim=-1),
        sample((3, 17, 2), k=3, dim=1, largest=False),
        sample(lambda rng: rng.permutation(100).astype(np.float32).reshape(1, 100), k=100, dim=1),
        sample(lambda rng: np.array([[1, np.nan, 3, 2]], np.float32), k=2, dim=1),
        sample(lambda rng: rng.permutation(30).reshape(2, 15), k=5, dim=1),
        sample((3, 17), k=0, dim=-1),
    )

    @staticmethod
    def infer(x, k, dim, largest, sorted):
        d = normalize_dim(dim, x.rank)
        size: Dim = x.shape[d] if x.rank else 1
        check(k >= 0 and (not isinstance(size, int) or k <= size), f"takes the top {k} of {size} elements")
        shape = (*x.shape[:d], k, *x.shape[d + 1 :]) if x.rank else ()
        return TensorType(x.dtype, shape), TensorType("i64", shape)

    @staticmethod
    def torch(x, k, dim=-1, largest=True, sorted=True):
        return pt.topk(x, k, dim, largest, True)

    @staticmethod
    def reference(x, k, dim, largest, sorted):
        values, indices = _sorted(x, dim, largest)
        if not x.ndim:
            return values, indices
        return np.take(values, range(k), dim), np.take(indices, range(k), dim)


MOST_OF_LONG = 256  # entries that a GPU takes of a row of any length: half of what a warp has in registers
# the rows of which a GPU has all elements in the registers of 32 lanes, and finds one result after the other
SHORT_ROW, MOST_TAKEN = 1024, 32


def takes_long_rows(x: TensorType, attributes: dict[str, Any]) -> bool:
    """True for a `topk` of up to MOST_OF_LONG elements along the last dim, whose order and position are 32 bits each."""
    if x.rank == 0 or normalize_dim(attributes["dim"], x.rank) != x.rank - 1:
        return False
    length, narrow = x.shape[-1], DTYPES[x.dtype].bytes <= 4 and x.dtype not in FLOAT8
    return narrow and isinstance(length, int) and length < 1 << 32 and 0 < attributes["k"] <= MOST_OF_LONG


def takes_short_rows(x: TensorType, attributes: dict[str, Any]) -> bool:
    """The same for few elements of short rows."""
    if not takes_long_rows(x, attributes):
        return False
    length = x.shape[-1]
    return isinstance(length, int) and length <= SHORT_ROW and attributes["k"] <= MOST_TAKEN


class SearchSorted(Op, name="searchsorted", category="direct"):
    """How many elements of the ascending last dim of `edges` are `<` (with `right`: `<=`) each value.

    `edges` is 1-D, or has the leading dims of `values`.
    """

    edges: Operand
    values: Operand
    right: Attr[bool] = False
    y: Result

    samples = (
        sample(lambda rng: np.array([1, 2, 2, 5], np.float32), lambda rng: np.array([[0, 1, 2], [3, 5, np.nan]], np.float32)),
        sample(lambda rng: np.array([1, 2, 2, 5], np.float32), lambda rng: np.array([0, 1, 2, 9], np.float32), right=True),
        sample(lambda rng: np.sort(rng.integers(0, 9, (3, 8))), lambda rng: rng.integers(0, 9, (3, 5))),
        sample(lambda rng: np.zeros((0,), np.float32), (3,)),
    )  # fmt: skip

    @staticmethod
    def infer(edges, values, right):
        check(edges.dtype == values.dtype, f"operands have types {edges.dtype} and {values.dtype}; cast one")
        check(edges.rank >= 1, "edges must have a dim to search")
        check(
            edges.rank == 1 or (edges.rank == values.rank and edges.shape[:-1] == values.shape[:-1]),
            f"edges {list(edges.shape)} must be 1-D or lead like values {list(values.shape)}",
        )
        return TensorType("i64", values.shape)

    @staticmethod
    def torch(edges, values, right=False):
        return pt.searchsorted(edges, values, right=right)

    @staticmethod
    def reference(edges, values, right):
        side = "right" if right else "left"
        if edges.ndim == 1:
            return np.searchsorted(edges, values, side).astype(np.int64)
        rows = zip(edges.reshape(-1, edges.shape[-1]), values.reshape(-1, values.shape[-1]))
        return np.stack([np.searchsorted(e, v, side) for e, v in rows]).reshape(values.shape).astype(np.int64)


def _sorted(x, dim, descending):
    """Stable sort with its permutation, ascending or descending, NaN largest."""
    if not x.ndim:
        return x, np.zeros((), np.int64)
    v = np.moveaxis(x, dim, -1)
    nan = v != v
    if not descending:
        order = np.lexsort((v, nan))
    else:
        # a descending stable sort is the reverse of an ascending one of the reversed row
        order = v.shape[-1] - 1 - np.lexsort((v[..., ::-1], nan[..., ::-1]))[..., ::-1]
    values = np.take_along_axis(v, order, -1)
    return np.moveaxis(values, -1, dim), np.moveaxis(order.astype(np.int64), -1, dim)
