"""What torch.nn calls in place of its own code when no gradient is wanted: a whole encoder layer, and its attention.

`nn.TransformerEncoderLayer` and `nn.MultiheadAttention` have a "fast path" of one ATen op. Here it is its parts again,
which fuse as those of any other model; attention is recognised in them. A mask says what is left out.
"""

from __future__ import annotations

from typing import Any

from .registry import Value, aten, require
from .tensor_math import T

_BY_PAIR, _BY_KEY = 0, 1  # mask types: [query, key] and [batch, key]; any other is [batch, head, query, key]


@aten("_native_multi_head_attention")
def native_multi_head_attention(
    c: Any,
    query: Value,
    key: Value,
    value: Value,
    embed_dim: int,
    num_head: int,
    qkv_weight: Value,
    qkv_bias: Value,
    proj_weight: Value,
    proj_bias: Value,
    mask: Value | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[Value, Value | None]:
    """`softmax(q kᵀ / sqrt(size of a head)) v`, projected; NaN for a query that may see no key, as eager has it."""
    require(mask is None or mask_type is not None, "a mask of unknown type")
    size = embed_dim // num_head
    heads = []
    for number, x in enumerate((query, key, value)):
        weight, bias = (T(c, w).slice(0, number * embed_dim, embed_dim) for w in (qkv_weight, qkv_bias))
        batch, length, _ = c.type(x).shape
        projected = T(c, c.op("linear", x, weight.value, bias.value))
        heads.append(projected.reshape(batch, length, num_head, size).permute(0, 2, 1, 3))
    q, k, v = heads
    scores = (q * size**-0.5).matmul(k.transpose())
    if mask is not None:
        scores = _left_out(T(c, mask), mask_type, scores).where(float("-inf"), scores)
    weights = scores.op("softmax", dim=-1)
    batch, _, length, _ = q.shape
    y = weights.matmul(v).permute(0, 2, 1, 3).reshape(batch, length, embed_dim)
    out = c.op("linear", y.value, proj_weight, proj_bias)
    if not need_weights:
        return out, None
    return out, (weights.mean((1,)) if average_attn_weights else weights).value


def _left_out(mask: T, kind: int | None, scores: T) -> T:
    """The mask as one of the shape of the scores; eager takes any number but 0 for true."""
    mask = mask if mask.dtype == "bool" else mask.ne(0)
    if kind == _BY_KEY:
        mask = mask.unsqueeze(1).unsqueeze(1)
    elif kind == _BY_PAIR:
        mask = mask.unsqueeze(0).unsqueeze(0)
    return mask.expand(*scores.shape)


@aten("_transformer_encoder_layer_fwd")
def transformer_encoder_layer(
    c: Any,
    src: Value,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Value,
    qkv_bias: Value,
    proj_weight: Value,
    proj_bias: Value,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Value,
    norm_bias_1: Value,
    norm_weight_2: Value,
    norm_bias_2: Value,
    ffn_weight_1: Value,
    ffn_bias_1: Value,
    ffn_weight_2: Value,
    ffn_bias_2: Value,
    mask: Value | None = None,
    mask_type: int | None = None,
) -> Value:
    """Attention and two linear layers, each with a residual and a norm before or after it."""

    def norm_1(x: T) -> T:
        return T(c, c.op("layer_norm", x.value, norm_weight_1, norm_bias_1, dims=1, eps=float(eps))[0])

    def norm_2(x: T) -> T:
        return T(c, c.op("layer_norm", x.value, norm_weight_2, norm_bias_2, dims=1, eps=float(eps))[0])

    def attend(x: T) -> T:
        matrices = (qkv_weight, qkv_bias, proj_weight, proj_bias)
        same = (x.value,) * 3
        found = native_multi_head_attention(
            c, *same, embed_dim, num_heads, *matrices, mask, need_weights=False, mask_type=mask_type
        )
        return T(c, found[0])

    def feed_forward(x: T) -> T:
        wide = c.op("linear", x.value, ffn_weight_1, ffn_bias_1)
        active = c.op("gelu", wide) if use_gelu else c.op("relu", wide)
        return T(c, c.op("linear", active, ffn_weight_2, ffn_bias_2))

    x = T(c, src)
    if norm_first:
        x = x + attend(norm_1(x))
        return (x + feed_forward(norm_2(x))).value
    x = norm_1(x + attend(x))
    return norm_2(x + feed_forward(x)).value
