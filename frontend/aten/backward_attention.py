"""The gradient of attention, from the log-sum-exp that the forward pass kept."""

from __future__ import annotations

from math import inf
from typing import Any

from ...dialects.dims import Dim
from .registry import Value, aten, require
from .tensor_math import T


@aten("_scaled_dot_product_flash_attention_for_cpu_backward")
def attention_backward(
    c: Any,
    grad_out: Value,
    query: Value,
    key: Value,
    value: Value,
    out: Value,
    logsumexp: Value,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: Value | None = None,
    scale: float | None = None,
) -> tuple:
    """With `p = exp(q kᵀ scale + mask - lse)`: `dv = pᵀ g`, `ds = p (g vᵀ - sum(g out)) scale`, `dq = ds k`, `dk = dsᵀ q`.

    Where several heads share one of `k` and `v`, its gradient is the sum over them.
    """
    require(dropout_p == 0, "dropout inside attention")
    q, k, v, g, o = (T(c, t).wide() for t in (query, key, value, grad_out, out))
    shared = k.shape
    if q.shape[:-2] != shared[:-2]:
        require(q.shape[:-3] == shared[:-3], "batches of different sizes")
        k, v = (_repeated(t, q.shape[-3]) for t in (k, v))
    dtype, width = c.type(query).dtype, q.shape[-1]
    require(isinstance(width, int), "a symbolic width")
    assert isinstance(width, int)
    factor = width**-0.5 if scale is None else float(scale)
    scores = q.matmul(k.transpose()) * factor
    if attn_mask is not None:
        m = T(c, attn_mask)
        scores = m.where(scores, -inf) if m.dtype == "bool" else scores + m.to(scores.dtype)
    if is_causal:
        rows, columns = (T(c, c.op("iota", size=(n,), start=0, step=1, dtype="i64")) for n in scores.shape[-2:])
        scores = columns.le(rows.unsqueeze(1)).where(scores, -inf)
    p = (scores - T(c, logsumexp).to(scores.dtype).unsqueeze(-1)).exp()
    dv = p.transpose().matmul(g)
    spread = g.matmul(v.transpose()) - (g * o).sum((-1,), keepdim=True)
    ds = p * spread * factor
    dk, dv = (_summed(t, shared[-3]) for t in (ds.transpose().matmul(q), dv))
    return tuple(t.to(dtype).value for t in (ds.matmul(k), dk, dv))


def _repeated(x: T, heads: Dim) -> T:
    """`[…, G, S, D]` to `[…, heads, S, D]`, each of `G` for as many heads in a row."""
    *batch, groups, length, width = x.shape
    each = _each(heads, groups)
    wide = x.reshape(*batch, groups, 1, length, width).expand(*batch, groups, each, length, width)
    return wide.reshape(*batch, heads, length, width)


def _summed(x: T, groups: Dim) -> T:
    """The transpose of `_repeated`."""
    *batch, heads, length, width = x.shape
    if heads == groups:
        return x
    return x.reshape(*batch, groups, _each(heads, groups), length, width).sum((-3,))


def _each(heads: Dim, groups: Dim) -> int:
    require(isinstance(heads, int) and isinstance(groups, int) and heads % groups == 0, "uneven head groups")
    assert isinstance(heads, int) and isinstance(groups, int)
    return heads // groups
