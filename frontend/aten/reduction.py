"""ATen's reductions. `dim` None or empty means all dims; a 0-d tensor is reduced over none."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...dialects import dtypes
from ...dialects.op import normalize_dim
from .registry import Unsupported, Value, add, aten, require
from .tensor_math import T

Axes = int | Sequence[int] | None


def _dims(t: T, dim: Axes) -> tuple[int, ...]:
    """The reduced dims, sorted; () for a 0-d tensor."""
    if dim is None or (not isinstance(dim, int) and len(dim) == 0):
        return tuple(range(t.rank))
    given = [dim] if isinstance(dim, int) else list(dim)
    found = sorted(normalize_dim(d, t.rank) for d in given)
    return tuple(found) if t.rank else ()


def _some(t: T, dim: Axes) -> tuple[int, ...]:
    """The same for a reduction without an identity: eager refuses to reduce nothing."""
    found = _dims(t, dim)
    t.c.require_some(t.shape[d] for d in found)
    return found


def _wide(t: T, dtype: str) -> T:
    return t.to("f32" if dtype in ("f16", "bf16") else dtype)


# -- sums -------------------------------------------------------------------------------------------------------
@aten("sum", "sum.dim_IntList")
def sum_(c: Any, x: Value, dim: Axes = None, keepdim: bool = False, dtype: str | None = None) -> Value:
    t, want = T(c, x), c.out_type.dtype
    if dtypes.is_float(want) and t.dtype != want and t.dtype != "bf16" and t.dtype != "f16":
        t = t.to(want)
    return t.op("sum", dims=_dims(t, dim), keepdim=keepdim, dtype=want).value


@aten("nansum")
def nansum(c: Any, x: Value, dim: Axes = None, keepdim: bool = False, dtype: str | None = None) -> Value:
    t = T(c, x).to(c.out_type.dtype)
    if dtypes.is_float(t.dtype):
        t = t.op("isnan").where(0.0, t)
    return t.op("sum", dims=_dims(t, dim), keepdim=keepdim, dtype=t.dtype).value


@aten("prod")
def prod(c: Any, x: Value, dtype: str | None = None) -> Value:
    return _prod(c, x, None, False)


@aten("prod.dim_int")
def prod_dim(c: Any, x: Value, dim: int, keepdim: bool = False, dtype: str | None = None) -> Value:
    return _prod(c, x, dim, keepdim)


def _prod(c: Any, x: Value, dim: Axes, keepdim: bool) -> Value:
    t = T(c, x)
    return t.op("prod", dims=_dims(t, dim), keepdim=keepdim, dtype=c.out_type.dtype).value


@aten("mean", "mean.dim")
def mean(c: Any, x: Value, dim: Axes = None, keepdim: bool = False, dtype: str | None = None) -> Value:
    want = c.out_type.dtype
    t = T(c, x)
    t = t.to(want) if dtypes.size(want) >= dtypes.size(t.dtype) else t
    return t.op("mean", dims=_dims(t, dim), keepdim=keepdim).to(want).value


@aten("count_nonzero", "count_nonzero.dim_IntList")
def count_nonzero(c: Any, x: Value, dim: Axes = None) -> Value:
    t = T(c, x).to("bool")
    return t.op("sum", dims=_dims(t, dim), keepdim=False, dtype="i64").value


@aten("trace")
def trace(c: Any, x: Value) -> Value:
    t = T(c, x)
    rows, columns = t.shape
    if not isinstance(rows, int) or not isinstance(columns, int):
        raise Unsupported("the trace of a symbolic size")
    if 0 in t.shape:
        return c.scalar(0, c.out_type.dtype)
    flat = t.reshape(rows * columns)
    picked = flat.op("as_strided", shape=(min(rows, columns),), strides=(columns + 1,), offset=(0,))
    return picked.op("sum", dims=(0,), keepdim=False, dtype=c.out_type.dtype).value


# -- variance ---------------------------------------------------------------------------------------------------
def _correction(unbiased: Any) -> float:
    return float(1 if unbiased is None else unbiased)


def _var_mean(c: Any, x: Value, dim: Axes, correction: Any, keepdim: bool) -> tuple[T, T, str]:
    t = T(c, x)
    var, mean_ = t.wide().op("var_mean", dims=_dims(t, dim), correction=_correction(correction), keepdim=keepdim)
    return var, mean_, t.dtype


@aten("var.correction")
def var(c: Any, x: Value, dim: Axes = None, correction: Any = None, keepdim: bool = False) -> Value:
    found, _, dtype = _var_mean(c, x, dim, correction, keepdim)
    return found.to(dtype).value


@aten("std.correction")
def std(c: Any, x: Value, dim: Axes = None, correction: Any = None, keepdim: bool = False) -> Value:
    found, _, dtype = _var_mean(c, x, dim, correction, keepdim)
    return found.op("sqrt").to(dtype).value


@aten("var_mean.correction")
def var_mean(c: Any, x: Value, dim: Axes = None, correction: Any = None, keepdim: bool = False) -> tuple:
    found, mean_, dtype = _var_mean(c, x, dim, correction, keepdim)
    return found.to(dtype).value, mean_.to(dtype).value


@aten("std_mean.correction")
def std_mean(c: Any, x: Value, dim: Axes = None, correction: Any = None, keepdim: bool = False) -> tuple:
    found, mean_, dtype = _var_mean(c, x, dim, correction, keepdim)
    return found.op("sqrt").to(dtype).value, mean_.to(dtype).value


def _unbiased(function: Any) -> Any:
    return lambda c, x, unbiased=True: function(c, x, None, 1 if unbiased else 0)


def _unbiased_dim(function: Any) -> Any:
    def convert(c: Any, x: Value, dim: Axes, unbiased: bool = True, keepdim: bool = False) -> Any:
        return function(c, x, dim, 1 if unbiased else 0, keepdim)

    return convert


for _name, _function in (("var", var), ("std", std), ("var_mean", var_mean), ("std_mean", std_mean)):
    add(_name, _unbiased(_function))
    add(f"{_name}.dim", _unbiased_dim(_function))


# -- extremes ---------------------------------------------------------------------------------------------------
def _extreme(op: str) -> Any:
    def convert(c: Any, x: Value, dim: Axes = None, keepdim: bool = False) -> Value:
        t = T(c, x)
        return t.op(op, dims=_some(t, dim), keepdim=keepdim).value

    return convert


def _extreme_with_index(op: str) -> Any:
    def convert(c: Any, x: Value, dim: int, keepdim: bool = False) -> tuple:
        t = T(c, x)
        dims = _some(t, dim)
        values, at = (t.op(name, dims=dims, keepdim=keepdim).value for name in (op, f"arg{op[1:]}"))
        return values, at

    return convert


def _position(op: str) -> Any:
    def convert(c: Any, x: Value, dim: int | None = None, keepdim: bool = False) -> Value:
        t = T(c, x)
        require(t.dtype != "bool", "bool, which eager refuses")
        made = t.op(op, dims=_some(t, dim), keepdim=False)
        return made.reshape(*c.out_type.shape).value

    return convert


for _op in ("amax", "amin"):
    add(_op, _extreme(_op))
    add(_op[1:], _extreme(_op))  # max and min of all elements
    add(f"{_op[1:]}.dim", _extreme_with_index(_op))
    add(f"arg{_op[1:]}", _position(f"arg{_op[1:]}"))


@aten("aminmax")
def aminmax(c: Any, x: Value, dim: int | None = None, keepdim: bool = False) -> tuple:
    t = T(c, x)
    low, high = (t.op(op, dims=_some(t, dim), keepdim=keepdim).value for op in ("amin", "amax"))
    return low, high


# -- truth ------------------------------------------------------------------------------------------------------
def _truth(op: str) -> Any:
    def convert(c: Any, x: Value, dim: Axes = None, keepdim: bool = False) -> Value:
        t = T(c, x)
        return t.op(op, dims=_dims(t, dim), keepdim=keepdim).to(c.out_type.dtype).value  # of u8 it is u8

    return convert


for _op in ("any", "all"):
    for _form in ("default", "dim", "dims"):
        add(f"{_op}.{_form}", _truth(_op))


# -- norms ------------------------------------------------------------------------------------------------------
@aten("linalg_vector_norm")
def vector_norm(
    c: Any, x: Value, order: Any = 2, dim: Axes = None, keepdim: bool = False, dtype: str | None = None
) -> Value:
    return _norm(c, x, order, dim, keepdim)


@aten("norm.Scalar")
def norm(c: Any, x: Value, order: Any = 2) -> Value:
    return _norm(c, x, order, None, False)


@aten("norm.ScalarOpt_dim")
def norm_dim(c: Any, x: Value, order: Any, dim: Axes, keepdim: bool = False) -> Value:
    return _norm(c, x, 2 if order is None else order, dim, keepdim)


@aten("norm.ScalarOpt_dim_dtype", "norm.ScalarOpt_dtype")
def norm_dtype(
    c: Any, x: Value, order: Any, dim: Axes = None, keepdim: bool = False, dtype: str | None = None
) -> Value:
    dim = None if isinstance(dim, str) else dim
    return _norm(c, x, 2 if order is None else order, dim, keepdim)


def _norm(c: Any, x: Value, order: float, dim: Axes, keepdim: bool) -> Value:
    """`sum(|x|^p)^(1/p)`; p = inf, -inf, 0 are the largest, the smallest and the number of non-zeros."""
    want = c.out_type.dtype
    t = _wide(T(c, x), want)
    dims = _dims(t, dim)

    def total(v: T) -> T:
        return v.op("sum", dims=dims, keepdim=keepdim, dtype=v.dtype)

    size = t.abs()
    if order == math.inf or order == -math.inf:
        made = size.op("amax" if order > 0 else "amin", dims=dims, keepdim=keepdim)
    elif order == 0:
        made = total(size.ne(0.0).to(t.dtype))
    elif order == 1:
        made = total(size)
    elif order == 2:
        made = total(t * t).op("sqrt")
    else:
        made = total(size.op("pow", float(order))).op("pow", 1.0 / float(order))
    return made.to(want).value


@aten("logsumexp")
def logsumexp(c: Any, x: Value, dim: Axes, keepdim: bool = False) -> Value:
    """`log(sum(exp(x - m))) + m` with the maximum `m`, 0 where that is infinite."""
    want = c.out_type.dtype
    t = _wide(T(c, x), want)
    dims = _dims(t, dim)
    top = t.op("amax", dims=dims, keepdim=True)
    top = top.op("isinf").where(0.0, top)
    total = (t - top).exp().op("sum", dims=dims, keepdim=keepdim, dtype=t.dtype)
    return (total.log() + top.reshape(*total.shape)).to(want).value


@aten("dist")
def dist(c: Any, x: Value, y: Value, order: Any = 2) -> Value:
    return _norm(c, (T(c, x) - T(c, y)).value, order, None, False)
