"""ATen's writes at computed positions: `scatter`, `index_put` and `slice_scatter`, and what they compose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...dialects.dims import Dim
from ...dialects.dtypes import is_float
from ...dialects.op import normalize_dim
from .positions import from_start, slice_start
from .registry import Unsupported, Value, aten, require
from .tensor_math import T

_REDUCE = {"add": "add", "multiply": "mul", "sum": "add", "prod": "mul", "amax": "amax", "amin": "amin"}


def _scatter(
    c: Any,
    x: Value,
    dim: int,
    index: Value,
    src: Value,
    reduce: str = "none",
    include_self: bool = True,
    index_error: bool = False,
) -> Value:
    require(c.type(x).dtype == c.type(src).dtype, "operands of different types")
    t, i, s = T(c, x), T(c, index), T(c, src)
    if t.rank == 0 or i.rank == 0 or s.rank == 0:  # torch takes a 0-d operand as one of a single element
        t, i, s = (v.reshape(1) if v.rank == 0 else v for v in (t, i, s))
    dtype = t.dtype
    if reduce in ("add", "mul"):  # eager rounds 16 bits once, not for each update
        t, s = t.wide(), s.wide()
    attributes = {"reduce": reduce, "include_self": include_self, "index_error": index_error}
    made = T(c, c.op("scatter", t.value, i.value, s.value, dim=dim, **attributes))
    return made.to(dtype).reshape(*c.type(x).shape).value


def _filled(c: Any, x: Value, index: Value, value: Any) -> Value:
    """`value` in the type of `x` and the shape of `index`."""
    type = c.type(x)
    if isinstance(value, Value):
        return T(c, value).to(type.dtype).expand(*c.type(index).shape).value
    return c.scalar(value, type.dtype, c.type(index).shape)


@aten("scatter.src")
def scatter_src(c: Any, x: Value, dim: int, index: Value, src: Value) -> Value:
    return _scatter(c, x, dim, index, src)


@aten("scatter.value")
def scatter_value(c: Any, x: Value, dim: int, index: Value, value: Any) -> Value:
    return _scatter(c, x, dim, index, _filled(c, x, index, value))


@aten("scatter.reduce")
def scatter_reduce_old(c: Any, x: Value, dim: int, index: Value, src: Value, *, reduce: str) -> Value:
    return _scatter(c, x, dim, index, src, _REDUCE[reduce])


@aten("scatter.value_reduce")
def scatter_value_reduce(c: Any, x: Value, dim: int, index: Value, value: Any, *, reduce: str) -> Value:
    return _scatter(c, x, dim, index, _filled(c, x, index, value), _REDUCE[reduce])


@aten("scatter_add")
def scatter_add(c: Any, x: Value, dim: int, index: Value, src: Value) -> Value:
    return _scatter(c, x, dim, index, src, "add")


@aten("scatter_reduce.two")
def scatter_reduce(
    c: Any, x: Value, dim: int, index: Value, src: Value, reduce: str, *, include_self: bool = True
) -> Value:
    return _reduce(c, x, dim, index, src, reduce, bool(include_self))


def _reduce(
    c: Any, x: Value, dim: int, index: Value, src: Value, reduce: str, include_self: bool, index_error: bool = False
) -> Value:
    """A scatter by torch's name of the reduction; a mean is a sum divided by how many it summed."""
    if reduce != "mean":
        return _scatter(c, x, dim, index, src, _REDUCE.get(reduce, reduce), include_self, index_error)
    total = T(c, _scatter(c, x, dim, index, src, "add", include_self, index_error))
    start = total.like(1 if include_self else 0)
    ones = T(c, index).to(total.dtype).like(1)
    count = T(c, _scatter(c, start.value, dim, index, ones.value, "add", True, index_error)).op("maximum", 1)
    rounding = "none" if is_float(total.dtype) else "floor"
    return total.op("div", count, rounding=rounding).value


# -- one index per slice ----------------------------------------------------------------------------------------
def _along(c: Any, index: Value, dim: int, shape: Sequence[Dim]) -> Value:
    """A 1-D index as the index of a scatter of `shape`: constant in every other dim."""
    i = T(c, index)
    i = i.reshape(1) if i.rank == 0 else i
    return i.reshape(*(i.shape[0] if d == dim else 1 for d in range(len(shape)))).expand(*shape).value


def _slices(
    c: Any,
    x: Value,
    dim: int,
    index: Value,
    src: T,
    reduce: str = "none",
    include_self: bool = True,
    index_error: bool = True,
) -> Value:
    """Scatter whole slices of `src` to positions `index` of `dim`; 0-d operands are those of one element."""
    t = T(c, x)
    rows, s = (t.reshape(1), src.reshape(1)) if t.rank == 0 else (t, src.reshape(1) if src.rank == 0 else src)
    require(s.rank == rows.rank, "a source of another rank")
    d = normalize_dim(dim, rows.rank)
    at = _along(c, index, d, s.shape)
    made = T(c, _reduce(c, rows.value, d, at, s.value, reduce, include_self, index_error))
    return made.reshape(*t.shape).value


@aten("index_add")
def index_add(c: Any, x: Value, dim: int, index: Value, src: Value, *, alpha: Any = 1) -> Value:
    require(c.type(x).dtype != "bool", "bool")
    s = T(c, src)
    return _slices(c, x, dim, index, s if alpha == 1 else s * alpha, "sum", index_error=False)


@aten("index_copy")
def index_copy(c: Any, x: Value, dim: int, index: Value, src: Value) -> Value:
    return _slices(c, x, dim, index, T(c, src))


@aten("index_reduce")
def index_reduce(
    c: Any, x: Value, dim: int, index: Value, src: Value, reduce: str, *, include_self: bool = True
) -> Value:
    return _slices(c, x, dim, index, T(c, src), reduce, bool(include_self))


@aten("index_fill.int_Scalar", "index_fill.int_Tensor")
def index_fill(c: Any, x: Value, dim: int, index: Value, value: Any) -> Value:
    """Negative positions count from the end here."""
    t, i = T(c, x), T(c, index)
    shape = t.shape or (1,)
    d = normalize_dim(dim, len(shape))
    i = i.reshape(1) if i.rank == 0 else i
    i = i.lt(0).where(i + T(c, c.scalar(shape[d], i.dtype)), i)
    filled = tuple(i.shape[0] if k == d else n for k, n in enumerate(shape))
    one = T(c, value).to(t.dtype) if isinstance(value, Value) else T(c, c.scalar(value, t.dtype))
    return _slices(c, x, dim, i.value, one.expand(*filled))


# -- several indices --------------------------------------------------------------------------------------------
@aten("index_put", "_unsafe_index_put")
def index_put(c: Any, x: Value, indices: Sequence[Value | None], values: Value, accumulate: bool = False) -> Value:
    t = T(c, x)
    given = [(d, i) for d, i in enumerate(indices) if i is not None]
    if any(c.type(i).dtype in ("bool", "u8") for _, i in given):
        return _masked_put(c, t, given, values, accumulate)
    if not given:
        raise Unsupported("no index")
    dims, positions = tuple(d for d, _ in given), [i for _, i in given]
    value = T(c, values).to(t.dtype)
    return c.op("index_put", x, value.value, *positions, dims=dims, accumulate=bool(accumulate))


def _masked_put(c: Any, t: T, given: list[tuple[int, Value]], values: Value, accumulate: bool) -> Value:
    """`x[mask] = values`: where the mask holds, one value for all, or the next one of a list."""
    value = T(c, values).to(t.dtype)
    first, mask = given[0]
    require(len(given) == 1 and first == 0 and c.type(mask).dtype == "bool", "a mask among several indices")
    m = T(c, mask)
    require(m.shape == t.shape[: m.rank], "a mask of another shape")
    rest = t.shape[m.rank :]
    if all(s == 1 for s in value.shape):
        new = value.reshape().expand(*t.shape)
    elif value.rank <= len(rest) or value.shape[0] == 1:
        require(value.rank <= 1 + len(rest), "values of more dims")
        new = (value if value.rank <= len(rest) else value.reshape(*value.shape[1:])).expand(*t.shape)
    else:
        require(value.rank == 1 + len(rest), "values of more dims")
        new = _in_turn(m, value.expand(value.shape[0], *rest))
    m = m.reshape(*m.shape, *([1] * len(rest)))
    return m.where(t + new if accumulate else new, t).value


def _in_turn(mask: T, values: T) -> T:
    """For each True of `mask` in row-major order the next row of `values`; any row elsewhere."""
    require(isinstance(values.shape[0], int) and values.shape[0] > 0, "no value, or a number of them not known ahead")
    flat = mask.reshape(mask.numel(*range(mask.rank))).to("i64")
    turn = (flat.op("cumsum", dim=0) - 1).op("maximum", 0)
    return values.op("index", turn, dims=(0,)).reshape(*mask.shape, *values.shape[1:])


@aten("masked_scatter")
def masked_scatter(c: Any, x: Value, mask: Value, source: Value) -> Value:
    shape = c.out_type.shape
    t, m, s = T(c, x).expand(*shape), T(c, mask).expand(*shape), T(c, source)
    return m.where(_in_turn(m, s.reshape(s.numel(*range(s.rank)))), t).value


# -- blocks -----------------------------------------------------------------------------------------------------
@aten("slice_scatter")
def slice_scatter(
    c: Any, x: Value, src: Value, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Value:
    """The source has the size of the slice."""
    t, s = T(c, x), T(c, src)
    d = normalize_dim(dim, t.rank)
    require(isinstance(step, int), "a symbolic step")
    s = s.to(t.dtype).expand(*(s.shape[k] if k == d else n for k, n in enumerate(t.shape)))
    return _slice_scatter(t, s, d, slice_start(c, start, end, t.shape[d], s.shape[d], step), step)


@aten("select_scatter")
def select_scatter(c: Any, x: Value, src: Value, dim: int, index: Any) -> Value:
    t = T(c, x)
    d = normalize_dim(dim, t.rank)
    s = T(c, src).to(t.dtype).unsqueeze(d)
    return _slice_scatter(t, s, d, from_start(c, index, t.shape[d]), 1)


def _slice_scatter(t: T, s: T, d: int, start: Dim, step: int) -> Value:
    starts = tuple(start if k == d else 0 for k in range(t.rank))
    steps = tuple(step if k == d else 1 for k in range(t.rank))
    return t.op("slice_scatter", s, starts=starts, steps=steps).value


@aten("copy")
def copy(c: Any, x: Value, src: Value, non_blocking: bool = False) -> Value:
    """The value that `x.copy_(src)` leaves: `src` in the type and shape of `x`."""
    type = c.type(x)
    return T(c, src).to(type.dtype).expand(*type.shape).value
