"""Scaled dot-product attention, kept whole so that one kernel never stores the scores."""

from __future__ import annotations

from math import inf
from string import ascii_lowercase

from ..dims import Dim
from ..dtypes import is_float
from ..lazy import np, pt, wide
from ..op import Attr, Op, Operand, OptionalOperand, Result, check, sample
from ..record import TensorType


class Attention(Op, name="attention", category="attention"):
    """`out = softmax(q kᵀ * scale + mask) v` and `lse = log(sum(exp(scores)))`, over `[B…, H, S, D]`.

    `scale` None is `1 / sqrt(D)`. `k` and `v` may have fewer heads (`H = gqa · Hkv`: query head `h` reads head `h // gqa`).
    `mask` broadcasts to `[B…, H, Sq, Skv]`: a bool one keeps True, a float one is added. `causal` keeps columns
    `j ≤ i`. A row with everything masked gives zeros (and lse 0), as torch's fused kernels do.
    `lse` is f32 (f64 for f64).
    """

    q: Operand
    k: Operand
    v: Operand
    mask: OptionalOperand
    causal: Attr[bool] = False
    scale: Attr[float] = None  # type: ignore[assignment]
    gqa: Attr[int] = 1
    out: Result
    lse: Result

    numerics = "order"
    samples = (
        sample((2, 3, 4, 8), (2, 3, 6, 8), (2, 3, 6, 8), None),
        sample((1, 2, 5, 8), (1, 2, 5, 8), (1, 2, 5, 8), None, causal=True, scale=0.3),
        sample((1, 4, 3, 8), (1, 2, 7, 8), (1, 2, 7, 8), None, gqa=2),
        sample((1, 2, 3, 8), (1, 2, 5, 8), (1, 2, 5, 8), (3, 5)),
        sample((1, 2, 3, 8), (1, 2, 5, 8), (1, 2, 5, 8), lambda rng: np.arange(15).reshape(1, 1, 3, 5) % 4 != 0),
        sample((1, 1, 2, 8), (1, 1, 3, 8), (1, 1, 3, 8), lambda rng: np.array([[False] * 3, [True] * 3])),
        sample(("bf16", (1, 2, 4, 8)), ("bf16", (1, 2, 4, 8)), ("bf16", (1, 2, 4, 8)), None, causal=True),
    )

    @staticmethod
    def infer(q, k, v, mask, causal, scale, gqa):
        check(is_float(q.dtype) and q.dtype == k.dtype == v.dtype, "q, k and v must be float tensors of one type")
        check(q.rank >= 3 and q.rank == k.rank == v.rank, "q, k and v must be [B…, H, S, D] of one rank")
        check(q.shape[:-3] == k.shape[:-3] == v.shape[:-3], "leading dims of q, k and v differ")
        check(
            k.shape[-3] == v.shape[-3] and q.shape[-3] == k.shape[-3] * gqa,
            f"{q.shape[-3]} query heads ≠ {gqa} · {k.shape[-3]}",
        )
        check(q.shape[-1] == k.shape[-1] and k.shape[-2] == v.shape[-2], "q/k widths or k/v lengths differ")
        if mask is not None:
            check(mask.dtype == "bool" or is_float(mask.dtype), f"mask must be bool or float, got {mask.dtype}")
            full: tuple[Dim, ...] = (*q.shape[:-1], k.shape[-2])
            check(
                mask.rank <= len(full) and all(m in (1, f) for m, f in zip(mask.shape[::-1], full[::-1])),
                f"mask {list(mask.shape)} does not broadcast to {list(full)}",
            )
        lse = TensorType("f64" if q.dtype == "f64" else "f32", q.shape[:-1])
        return TensorType(q.dtype, (*q.shape[:-1], v.shape[-1])), lse

    @staticmethod
    def torch(q, k, v, mask, causal=False, scale=None, gqa=1):
        k, v = (t.repeat_interleave(gqa, -3) for t in (k, v))
        if mask is not None:
            bias = (
                pt.zeros(mask.shape, dtype=q.dtype).masked_fill(~mask, -float("inf")) if mask.dtype == pt.bool else mask
            )
            mask = bias.expand(*q.shape[:-1], k.shape[-2])
        return pt.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            q, k, v, 0.0, causal, attn_mask=mask, scale=scale
        )

    @staticmethod
    def reference(q, k, v, mask, causal, scale, gqa):
        k, v = (np.repeat(wide(t), gqa, -3) for t in (k, v))
        s = np.matmul(wide(q), np.swapaxes(k, -1, -2)) * (scale if scale is not None else max(q.shape[-1], 1) ** -0.5)
        if mask is not None:
            s = np.where(mask, s, -np.inf) if mask.dtype == bool else s + wide(mask)
        if causal:
            s = np.where(np.tril(np.ones(s.shape[-2:], bool)), s, -np.inf)
        top = s.max(-1, keepdims=True, initial=-np.inf)
        top = np.where(np.isneginf(top), 0, top)
        e = np.exp(s - top)
        total = e.sum(-1, keepdims=True)
        empty = total == 0
        out = np.matmul(e / np.where(empty, 1, total), v)
        lse = np.where(empty, 0, top + np.log(np.where(empty, 1, total)))[..., 0]
        return out.astype(q.dtype), lse.astype(np.float64 if q.dtype == np.float64 else np.float32)

    @staticmethod
    def lower(b, q, k, v, mask, causal, scale, gqa):
        *batch, heads, rows, width = q.shape
        columns, acc = k.shape[-2], "f64" if q.dtype == "f64" else "f32"
        lead = ascii_lowercase[: len(batch)]
        grouped = b.reshape(q, (*batch, heads // gqa, gqa, rows, width))
        scores = b.contract(f"{lead}xyid,{lead}xjd->{lead}xyij", grouped, k, acc)
        scores = b.mul(
            b.reshape(scores, (*batch, heads, rows, columns)), max(width, 1) ** -0.5 if scale is None else scale
        )
        if mask is not None:
            scores = b.where(mask, scores, -inf) if mask.dtype == "bool" else b.add(scores, b.cast(mask, acc))
        if causal:
            last = scores.rank - 1
            scores = b.map(lambda s, v: s.select(s.le(s.index(last), s.index(last - 1)), v, -inf), scores)
        top = b.amax(scores, (-1,), keepdim=True)
        top = b.map(lambda s, v: s.select(s.eq(v, -inf), 0.0, v), top)
        e = b.exp(b.sub(scores, top))
        total = b.sum(e, (-1,), keepdim=True)
        safe = b.map(lambda s, v: s.select(s.eq(v, 0.0), 1.0, v), total)
        parts = b.reshape(e, (*batch, heads // gqa, gqa, rows, columns))
        out = b.contract(f"{lead}xyij,{lead}xjd->{lead}xyid", parts, b.cast(v, acc))
        out = b.div(b.reshape(out, (*batch, heads, rows, v.shape[-1])), safe)
        lse = b.map(lambda s, t, m: s.select(s.eq(t, 0.0), 0.0, s.add(m, s.log(t))), total, top)
        return b.cast(out, q.dtype), b.reshape(lse, (*batch, heads, rows))
