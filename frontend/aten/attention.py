"""ATen's scaled dot-product attention, in the forms in which graphs hold it; all become one `attention` op."""

from __future__ import annotations

from typing import Any

from ...dialects.dims import ceildiv
from ...dialects.op import broadcast
from .registry import Value, aten, require
from .tensor_math import T


@aten("scaled_dot_product_attention")
def scaled_dot_product_attention(
    c: Any,
    query: Value,
    key: Value,
    value: Value,
    attn_mask: Value | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Value:
    return _attention(c, query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)[0]


@aten("_scaled_dot_product_flash_attention_for_cpu")
def flash_attention_for_cpu(
    c: Any,
    query: Value,
    key: Value,
    value: Value,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Value | None = None,
    scale: float | None = None,
) -> tuple:
    return _attention(c, query, key, value, attn_mask, dropout_p, is_causal, scale, True)


# CUDA's kernels. Seeds and offsets of dropout and lengths of packed sequences are left out (None): nothing else reads them.
@aten("_scaled_dot_product_efficient_attention")
def efficient_attention(
    c: Any,
    query: Value,
    key: Value,
    value: Value,
    attn_bias: Value | None,
    compute_log_sumexp: bool,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
) -> tuple:
    """The log-sum-exp has rows of a multiple of 32, or none where it is not wanted."""
    out, lse = _attention(c, query, key, value, attn_bias, dropout_p, is_causal, scale, False)
    found = T(c, lse)
    rows = found.shape[-1]
    if not compute_log_sumexp:
        return out, None, None, None
    more = ceildiv(rows, 32) * 32 - rows
    low, high = (0,) * found.rank, (*(0,) * (found.rank - 1), more)
    return out, c.op("pad", lse, low=low, high=high, value=0.0, mode="constant"), None, None


@aten("_scaled_dot_product_flash_attention")
def flash_attention(
    c: Any,
    query: Value,
    key: Value,
    value: Value,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> tuple:
    square = c.type(query).shape[-2] == c.type(key).shape[-2]
    require(not is_causal or square, "a diagonal that ends in the last corner")
    out, lse = _attention(c, query, key, value, None, dropout_p, is_causal, scale, True)
    return out, lse, *(None,) * 7


@aten("_scaled_dot_product_cudnn_attention")
def cudnn_attention(
    c: Any,
    query: Value,
    key: Value,
    value: Value,
    attn_bias: Value | None,
    compute_log_sumexp: bool,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> tuple:
    """The log-sum-exp has a last dim of 1."""
    out, lse = _attention(c, query, key, value, attn_bias, dropout_p, is_causal, scale, True)
    return out, T(c, lse).reshape(*c.type(lse).shape, 1).value, *(None,) * 7


def _attention(
    c: Any,
    query: Value,
    key: Value,
    value: Value,
    mask: Value | None,
    dropout: float,
    causal: bool,
    scale: float | None,
    gqa: bool,
) -> tuple:
    require(dropout == 0, "dropout inside attention")
    q, k, v = T(c, query), T(c, key), T(c, value)
    require(q.dtype == k.dtype == v.dtype, "q, k and v of different types")
    # [S, D] and [H, S, D] are [1, 1, S, D] and [1, H, S, D]
    rank = max(q.rank, 3)
    q3, k3, v3 = (t.reshape(*([1] * (rank - t.rank)), *t.shape) for t in (q, k, v))
    groups = 1
    if gqa and k3.shape[-3] != q3.shape[-3] and k3.shape[-3] != 1:
        heads, shared = q3.shape[-3], k3.shape[-3]
        require(isinstance(heads, int) and isinstance(shared, int) and heads % shared == 0, "uneven head groups")
        groups = heads // shared
        batch = broadcast(q3.shape[:-3], k3.shape[:-3], v3.shape[:-3])
        q3 = q3.expand(*batch, *q3.shape[-3:])
        k3, v3 = (t.expand(*batch, *t.shape[-3:]) for t in (k3, v3))
    else:
        batch = broadcast(q3.shape[:-2], k3.shape[:-2], v3.shape[:-2])
        q3, k3, v3 = (t.expand(*batch, *t.shape[-2:]) for t in (q3, k3, v3))
    if mask is not None:
        m = T(c, mask)
        require(m.rank <= q3.rank, "a mask of higher rank")
        mask = m.value if m.dtype == "bool" or m.dtype == q.dtype or m.dtype == "f32" else m.to(q.dtype).value
    out, lse = c.op(
        "attention",
        q3.value,
        k3.value,
        v3.value,
        mask,
        causal=bool(causal),
        scale=None if scale is None else float(scale),
        gqa=groups,
    )
    if q3.rank == q.rank:
        return out, lse
    return T(c, out).reshape(*q.shape[:-1], v.shape[-1]).value, T(c, lse).reshape(*q.shape[:-1]).value
