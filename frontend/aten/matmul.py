"""ATen's matrix products: everything becomes `linear` (one bias per output column) or `matmul` of equal batch dims.

A scaled or general addend is composed around a product in the wide type, so that f16 and bf16 round once, as eager's
`beta * C + alpha * A B` does.
"""

from __future__ import annotations

from typing import Any

from ...dialects.op import broadcast
from .registry import Value, aten, require
from .tensor_math import T


@aten("linear")
def linear(c: Any, x: Value, w: Value, bias: Value | None = None) -> Value:
    require(len(c.type(w).shape) == 2, "a weight that is no matrix")
    return c.op("linear", x, w, bias)


@aten("mm", "bmm")
def mm(c: Any, a: Value, b: Value) -> Value:
    return c.op("matmul", a, b)


@aten("_int_mm")
def int_mm(c: Any, a: Value, b: Value) -> Value:
    """A product of i8 in i32: of casts, which kernels take apart where a machine multiplies i8."""
    return T(c, a).to("i32").matmul(T(c, b).to("i32")).value


@aten("mv")
def mv(c: Any, a: Value, v: Value) -> Value:
    return c.op("reshape", c.op("matmul", a, T(c, v).unsqueeze(1).value), shape=c.type(a).shape[:1])


@aten("dot", "vdot")
def dot(c: Any, a: Value, b: Value) -> Value:
    return T(c, a).unsqueeze(0).matmul(T(c, b).unsqueeze(1)).reshape().value


@aten("matmul")
def matmul(c: Any, a: Value, b: Value) -> Value:
    """torch.matmul: vectors become matrices for the product, batch dims broadcast."""
    x, y = T(c, a), T(c, b)
    out = c.out_type.shape
    row, column = x.rank == 1, y.rank == 1
    x = x.unsqueeze(0) if row else x
    if not row and y.rank == 2 and x.rank > 2:
        # [B…, M, K] @ [K, N]: one tall matrix
        rows = x.reshape(x.numel(*range(x.rank - 1)), x.shape[-1])
        return rows.matmul(y).reshape(*out).value
    y = y.unsqueeze(1) if column else y
    batch = broadcast(x.shape[:-2], y.shape[:-2])
    x, y = (t.expand(*batch, *t.shape[-2:]) for t in (x, y))
    return x.matmul(y).reshape(*out).value


@aten("addmm")
def addmm(c: Any, addend: Value, a: Value, b: Value, *, beta: Any = 1, alpha: Any = 1) -> Value:
    y = T(c, addend)
    columns = c.type(b).shape[1]
    per_column = y.shape == (columns,) or y.shape == (1, columns)
    if beta == 1 and alpha == 1 and per_column:
        return c.op("linear", a, T(c, b).transpose().value, y.reshape(columns).value)
    return _combine(c, y, T(c, a), T(c, b), beta, alpha)


@aten("baddbmm")
def baddbmm(c: Any, addend: Value, a: Value, b: Value, *, beta: Any = 1, alpha: Any = 1) -> Value:
    return _combine(c, T(c, addend), T(c, a), T(c, b), beta, alpha)


@aten("addmv")
def addmv(c: Any, addend: Value, a: Value, v: Value, *, beta: Any = 1, alpha: Any = 1) -> Value:
    y = T(c, addend)
    y = y.unsqueeze(1) if y.rank else y
    made = T(c, _combine(c, y, T(c, a), T(c, v).unsqueeze(1), beta, alpha))
    return made.reshape(*made.shape[:1]).value


@aten("addbmm")
def addbmm(c: Any, addend: Value, a: Value, b: Value, *, beta: Any = 1, alpha: Any = 1) -> Value:
    """The sum over the batch is part of the contraction: `[M, B·K] @ [B·K, N]`."""
    x, y = T(c, a), T(c, b)
    n, m, k = x.shape
    left = x.permute(1, 0, 2).reshape(m, n * k)
    return _combine(c, T(c, addend), left, y.reshape(n * k, y.shape[2]), beta, alpha)


def _combine(c: Any, addend: T, a: T, b: T, beta: Any, alpha: Any) -> Value:
    """`beta * addend + alpha * a @ b`; with beta 0 the addend is not read (it may hold NaN)."""
    dtype = a.dtype
    require(addend.dtype == dtype == b.dtype, "operands of different types")
    product = a.wide().matmul(b.wide())
    product = product if alpha == 1 else product * alpha
    if beta == 0:
        return product.to(dtype).value
    addend = addend.wide() if beta == 1 else addend.wide() * beta
    return (product + addend).to(dtype).value
