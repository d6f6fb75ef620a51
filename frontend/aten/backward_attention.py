"""The gradient of attention, from the log-sum-exp that the forward pass kept."""

from __future__ import annotations

from math import inf
from typing import Any

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
    """With `p = exp(q kᵀ scale + mask - lse)`: `dv = pᵀ g`, `ds = p (g vᵀ - sum(g out)) scale`, `dq = ds k`, `dk = dsᵀ q`."""
    require(dropout_p == 0, "dropout inside attention")
    q, k, v, g, o = (T(c, t).wide() for t in (query, key, value, grad_out, out))
    require(q.shape[:-2] == k.shape[:-2], "grouped heads")
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
    return tuple(t.to(dtype).value for t in (ds.matmul(k), ds.transpose().matmul(q), dv))
