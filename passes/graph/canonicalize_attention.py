"""Rewrites of attention: repeated keys and values are shared by query heads, masks that are known are not read, nor repeated."""

from __future__ import annotations

from mlir import ir

from ...dialects.dtypes import is_float
from ...dialects.mlir_types import type_of
from .attention_masks import Mask, is_causal
from .rewriter import Match, Patterns, Replacement

ATTENTION = Patterns()


@ATTENTION.pattern("attention")
def shared_heads(m: Match) -> Replacement:
    """Attention with `g` copies of each head of `k` and `v` is attention where `g` query heads share it."""
    q, k, v, mask = m.operands
    group, keys, values = share_heads(m, k, v)
    if group == 1:
        return None
    attributes = {**m.attributes, "gqa": m.attributes["gqa"] * group}
    return tuple(m.build("attention", [q, keys, values, mask], **attributes).owner.results)


@ATTENTION.pattern("attention")
def causal_mask(m: Match) -> Replacement:
    """Attention with a mask that is known to keep just the keys `j <= i` is causal."""
    q, k, v, mask = m.operands
    if mask is None or q is None or k is None or m.attributes["causal"]:
        return None
    given = Mask(mask, keep=None if is_float(type_of(mask).dtype) else True)
    if not is_causal(m, given, (*type_of(q).shape[:-1], type_of(k).shape[-2])):
        return None
    return tuple(m.build("attention", [q, k, v, None], **{**m.attributes, "causal": True}).owner.results)


@ATTENTION.pattern("attention")
def mask_of_fewer_dims(m: Match) -> Replacement:
    """A mask that is the same for all queries, or heads, is made once for them, and read as if they had one each."""
    q, k, v, mask = m.operands
    if mask is None or not _repeats(m, mask):
        return None
    return tuple(m.build("attention", [q, k, v, _before_expanding(m, mask)], **m.attributes).owner.results)


def _repeats(m: Match, value: ir.Value) -> bool:
    """True if a tensor is computed, element by element, of expanded tensors and single elements alone."""
    made = m.producer(value)
    if made is None or made.cls.name == "expand":
        return made is not None
    given = [x for x in made.operands if x is not None and type_of(x).numel != 1]
    elementwise = made.cls.category == "pointwise" and made.cls.name not in ("place", "materialize")
    return elementwise and bool(given) and all(_repeats(m, x) for x in given)


def _before_expanding(m: Match, value: ir.Value | None) -> ir.Value | None:
    """What such a tensor is when none is expanded: fewer elements, which broadcast to it."""
    made = m.producer(value)
    if made is None or type_of(value).numel == 1:  # type: ignore[arg-type]
        return value
    if made.cls.name == "expand":
        return made["x"]
    return m.build(made.cls.name, [_before_expanding(m, x) for x in made.operands], **made.attributes)


def share_heads(m: Match, k: ir.Value, v: ir.Value) -> tuple[int, ir.Value, ir.Value]:
    """How many times in a row `k` and `v` both have each head, and these with each head once."""
    keys, values = _repeated_heads(m, k), _repeated_heads(m, v)
    if keys is None or values is None or keys[0] != values[0]:
        return 1, k, v
    return keys[0], keys[1], values[1]


def _repeated_heads(m: Match, value: ir.Value) -> tuple[int, ir.Value] | None:
    """`(g, x)` where `value` has each head of `x` [B…, H, S, D] `g` times in a row, made by a reshape of an expansion.

    `x → [B…, H, 1, S, D] → [B…, H, g, S, D] → [B…, H·g, S, D]`, as `repeat_interleave` and transformers' `repeat_kv` do.
    Such a tensor has no strides over `x`: it would be a copy.
    """
    merged = m.made_by("reshape", value)
    copies = m.made_by("expand", merged["x"]) if merged else None
    if merged is None or copies is None:
        return None
    source, wide = type_of(copies["x"]).shape, copies.type.shape
    if len(source) != len(wide) or len(wide) != merged.type.rank + 1 or len(wide) < 4:
        return None
    *batch, heads, group, rows, width = wide
    shape = (*batch, heads, rows, width)
    if source != (*batch, heads, 1, rows, width) or not isinstance(group, int):
        return None
    if merged.type.shape != (*batch, heads * group, rows, width):
        return None
    inner = m.made_by("reshape", copies["x"])
    if inner and type_of(inner["x"]).shape == shape:
        return group, inner["x"]
    return group, m.build("reshape", [copies["x"]], shape=shape)
