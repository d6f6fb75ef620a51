"""ATen's tensors from numbers: filled ones, ranges, triangles."""

from __future__ import annotations

import base64
import struct
from typing import Any

from ...dialects import dtypes
from ...dialects.dims import Dim, Expr
from ...dialects.op import normalize_dim
from .promotion import as_value, number
from .registry import Value, aten, require
from .tensor_math import T


def _full(c: Any, value: Any) -> Value:
    """Eager's type, filled with a number, a symbolic size or a 0-d tensor."""
    type = c.out_type
    if isinstance(value, Value):
        return T(c, c.cast(value, type.dtype)).reshape().expand(*type.shape).value
    return c.scalar(number(value, type.dtype), type.dtype, type.shape)


@aten("full", "full_like", "fill.Scalar", "fill.Tensor")
def full(c: Any, _: Any, value: Any, *__: Any, **___: Any) -> Value:
    return _full(c, value)


@aten("new_full")
def new_full(c: Any, _: Any, size: Any, value: Any, *__: Any, **___: Any) -> Value:
    return _full(c, value)


@aten("zeros", "zeros_like", "new_zeros", "zero", "_efficientzerotensor")
def zeros(c: Any, *_: Any, **__: Any) -> Value:
    return _full(c, 0)


@aten("ones", "ones_like", "new_ones")
def ones(c: Any, *_: Any, **__: Any) -> Value:
    return _full(c, 1)


@aten("empty.memory_format", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "empty_permuted")
def empty(c: Any, *_: Any, **__: Any) -> Value:
    """Any value will do; zeros are the same in every run."""
    return _full(c, 0)


@aten("scalar_tensor")
def scalar_tensor(c: Any, value: Any, *_: Any, **__: Any) -> Value:
    return _full(c, value)


# -- ranges -----------------------------------------------------------------------------------------------------
@aten("arange")
def arange(c: Any, end: Any, *_: Any, **__: Any) -> Value:
    return iota(c, c.out_type.shape[0], 0, 1, c.out_type.dtype)


@aten("arange.start")
def arange_start(c: Any, start: Any, end: Any, *_: Any, **__: Any) -> Value:
    return iota(c, c.out_type.shape[0], start, 1, c.out_type.dtype)


@aten("arange.start_step")
def arange_step(c: Any, start: Any, end: Any, step: Any = 1, *_: Any, **__: Any) -> Value:
    return iota(c, c.out_type.shape[0], start, step, c.out_type.dtype)


def iota(c: Any, size: Dim, start: Any, step: Any, dtype: str) -> Value:
    """`start + i step` for `i < size`; symbolic `start` and `step` are added and multiplied as tensors."""
    if isinstance(start, Expr) or isinstance(step, Expr):
        made = T(c, c.op("iota", size=(size,), start=0, step=1, dtype=dtype))
        return (made * T(c, c.scalar(step, dtype)) + T(c, c.scalar(start, dtype))).value
    if not dtypes.is_float(dtype):
        require(start == int(start) and step == int(step), "an integer range with a fractional start or step")
        start, step = int(start), int(step)
    return c.op("iota", size=(size,), start=start, step=step, dtype=dtype)


@aten("linspace")
def linspace(c: Any, start: Any, end: Any, steps: Any, *_: Any, **__: Any) -> Value:
    dtype = c.out_type.dtype
    require(dtypes.is_float(dtype), "linspace of integers")
    return _between(c, start, end, steps, "f64" if dtype == "f64" else "f32").to(dtype).value


@aten("logspace")
def logspace(c: Any, start: Any, end: Any, steps: Any, base: float = 10.0, *_: Any, **__: Any) -> Value:
    """`base` to the powers of a linspace, computed in f64."""
    dtype = c.out_type.dtype
    require(dtypes.is_float(dtype), "logspace of integers")
    at = _between(c, start, end, steps, "f64")
    return T(c, c.scalar(float(base), "f64")).op("pow", at).to(dtype).value


@aten("linspace.Tensor_Tensor", "linspace.Tensor_Scalar", "linspace.Scalar_Tensor")
def linspace_tensor(c: Any, start: Any, end: Any, steps: Any, *_: Any, **__: Any) -> Value:
    return linspace(c, start, end, steps)


@aten("logspace.Tensor_Tensor", "logspace.Tensor_Scalar", "logspace.Scalar_Tensor")
def logspace_tensor(c: Any, start: Any, end: Any, steps: Any, base: float = 10.0, *_: Any, **__: Any) -> Value:
    return logspace(c, start, end, steps, base)


def _between(c: Any, start: Any, end: Any, steps: Any, dtype: str) -> T:
    """`steps` numbers from `start` to `end`, counted from both ends towards the middle, as eager, so both are exact."""
    require(isinstance(steps, int) and not isinstance(start, Expr) and not isinstance(end, Expr), "a symbolic linspace")
    first, last = (T(c, as_value(c, v, dtype)).reshape() for v in (start, end))
    first_number, last_number = ((0.0 if isinstance(v, (Value, Expr)) else float(v)) for v in (start, end))
    if steps < 2:
        return first.expand(steps)
    at = T(c, iota(c, steps, 0, 1, dtype))
    if isinstance(start, Value) or isinstance(end, Value):
        step = (last - first) / float(steps - 1)
    else:
        step = T(c, c.scalar((last_number - first_number) / (steps - 1), dtype))
    low, high = first + at * step, last - (float(steps - 1) - at) * step
    return at.lt(float(steps // 2)).where(low, high)


@aten("eye", "eye.m")
def eye(c: Any, *_: Any, **__: Any) -> Value:
    type = c.out_type
    row, column = _row_column(c, *type.shape)
    return row.eq(column).to(type.dtype).value


# -- triangles --------------------------------------------------------------------------------------------------
def _row_column(c: Any, rows: Dim, columns: Dim) -> tuple[T, T]:
    row, column = (T(c, c.op("iota", size=(n,), start=0, step=1, dtype="i64")) for n in (rows, columns))
    return row.reshape(rows, 1), column


def _triangle(c: Any, x: Value, diagonal: Any, lower: bool) -> Value:
    t = T(c, x)
    row, column = _row_column(c, *t.shape[-2:])
    edge = row + T(c, as_value(c, diagonal, "i64"))
    kept = column.le(edge) if lower else column.op("ge", edge)
    return kept.where(t, number(0, t.dtype)).value


@aten("tril")
def tril(c: Any, x: Value, diagonal: Any = 0) -> Value:
    return _triangle(c, x, diagonal, True)


@aten("triu")
def triu(c: Any, x: Value, diagonal: Any = 0) -> Value:
    return _triangle(c, x, diagonal, False)


@aten("tril_indices")
def tril_indices(c: Any, rows: int, columns: int, offset: int = 0, *_: Any, **__: Any) -> Value:
    return _positions(c, rows, columns, lambda i, j: j <= i + offset)


@aten("triu_indices")
def triu_indices(c: Any, rows: int, columns: int, offset: int = 0, *_: Any, **__: Any) -> Value:
    return _positions(c, rows, columns, lambda i, j: j >= i + offset)


def _positions(c: Any, rows: int, columns: int, chosen: Any) -> Value:
    require(isinstance(rows, int) and isinstance(columns, int) and rows * columns <= 4096, "many triangle indices")
    found = [(i, j) for i in range(rows) for j in range(columns) if chosen(i, j)]
    return literal(c, [i for i, _ in found] + [j for _, j in found], c.out_type.dtype, (2, len(found)))


def literal(c: Any, values: list, dtype: str, shape: tuple[int, ...]) -> Value:
    """A constant tensor of Python numbers, row-major."""
    code = {"f32": "f", "f64": "d", "i64": "q", "i32": "i", "i16": "h", "i8": "b", "u8": "B", "bool": "?"}[dtype]
    data = struct.pack(f"<{len(values)}{code}", *values)
    return c.op("constant", dtype=dtype, shape=shape, data=base64.b64encode(data).decode("ascii"))


@aten("diag_embed")
def diag_embed(c: Any, x: Value, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Value:
    """`x`'s last dim along the diagonal of two new dims, zeros elsewhere."""
    t = T(c, x)
    rank = t.rank + 1
    a, b = normalize_dim(dim1, rank), normalize_dim(dim2, rank)
    size = c.out_type.shape[a]
    row, column = _row_column(c, size, size)
    on = column.eq(row + offset)
    # the element at (i, j) of the diagonal is x[..., min(i, j)]: pad to the full size, then spread along the rows
    low = max(-offset, 0)
    if offset:
        padded = t.op(
            "pad",
            low=(0,) * (t.rank - 1) + (low,),
            high=(0,) * (t.rank - 1) + (abs(offset) - low,),
            value=number(0, t.dtype),
            mode="constant",
        )
    else:
        padded = t
    made = on.where(padded.unsqueeze(-1), number(0, t.dtype))
    order = [i for i in range(rank) if i not in (a, b)]
    places = [rank - 2 if i == a else rank - 1 if i == b else order.index(i) for i in range(rank)]
    return made.permute(*places).value
