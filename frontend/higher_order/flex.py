"""`flex_attention` as attention with a mask where its score function allows that, else as what it consists of.

    score_mod(s, b, h, i, j) = s + g(b, h, i, j)    attention(q, k, v, mask = where(mask_mod(b, h, i, j), g, -inf))
    any other, such as a soft cap                   softmax(where(mask_mod, score_mod(q kᵀ scale), -inf)) v

The mask is pointwise ops on four `arange`s, which may join the attention kernel. Blocks that a block mask leaves out are
computed and masked, except those above the diagonal where `mask_mod` is `i >= j`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from .meanings import Body

_aten = torch.ops.aten
# Which argument of (b, h, i, j) each of four nested vmaps goes over, the innermost first.
_DIMENSIONS = ((None, None, None, 0), (None, None, 0, None), (None, 0, None, None), (0, None, None, None))


def flex_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: Body,
    block_mask: Sequence[Any],
    scale: float,
    _options: Any,
    score_captured: Sequence[Any] = (),
    mask_captured: Sequence[Any] = (),
) -> tuple[Tensor, Tensor, Tensor]:
    """The result, log2 of each row's sum of exponentials, and its largest score over ln 2, as torch's `math_attention`."""
    batch, heads = query.shape[:2]
    groups = heads // key.shape[1]
    key, value = (t.expand(batch, *t.shape[1:]) for t in (key, value))
    mask_mod: Body = block_mask[-1]
    b, h, i, j = (torch.arange(n, device=query.device) for n in (batch, heads, query.shape[2], key.shape[2]))
    kept = _over_places(mask_mod, len(mask_captured))(b, h, i, j, *mask_captured)
    wide = torch.float64 if query.dtype is torch.float64 else torch.float32

    keys, values = (_repeated(t, groups) for t in (key, value))
    scores = (query.to(wide) @ keys.to(wide).transpose(-2, -1)) * scale
    least = torch.full((), -math.inf, dtype=wide, device=query.device)
    scored = _over_places(score_mod, len(score_captured), scores=True)
    scores = torch.where(kept, scored(scores, b, h, i, j, *score_captured), least)
    largest = scores.amax(-1)
    total = torch.where(largest == -math.inf, least, scores.logsumexp(-1))
    if not is_additive(score_mod.graph):
        out = _aten._safe_softmax.default(scores, -1).to(query.dtype) @ values
        return out, total / math.log(2), largest / math.log(2)

    mask: Tensor | None = kept
    if not _is_score(score_mod.graph):
        none = torch.zeros((), dtype=wide, device=query.device).expand(batch, heads, query.shape[2], key.shape[2])
        mask = torch.where(kept, scored(none, b, h, i, j, *score_captured), least)
    elif is_causal(mask_mod.graph) or is_everything(mask_mod.graph):
        mask = None
    causal = mask is None and is_causal(mask_mod.graph)
    attend = _aten.scaled_dot_product_attention.default
    out = attend(query, key, value, mask, 0.0, causal, scale=scale, enable_gqa=groups > 1)
    return out, total / math.log(2), largest / math.log(2)


def _over_places(function: Callable[..., Any], captured: int, scores: bool = False) -> Callable[..., Tensor]:
    """A function of one place (and its score) as one of all: `[B, H, M, N]` of `b [B], h [H], i [M], j [N]`."""
    for dimensions in _DIMENSIONS:
        function = torch.vmap(function, ((0,) if scores else ()) + dimensions + (None,) * captured)
    return function


def _repeated(x: Tensor, groups: int) -> Tensor:
    """Each head `groups` times."""
    if groups == 1:
        return x
    batch, heads, *rest = x.shape
    return x.unsqueeze(2).expand(batch, heads, groups, *rest).reshape(batch, heads * groups, *rest)


def is_additive(graph: fx.Graph) -> bool:
    """True if a score function adds something that does not depend on the score, -inf too."""
    score = next(iter(graph.nodes))
    while True:
        if score is graph.output_node().args[0]:
            return True
        users = list(score.users)
        if len(users) != 1 or not _adds_to(score, users[0]):
            return False
        score = users[0]


def _adds_to(score: fx.Node, node: fx.Node) -> bool:
    others = [a for a in node.args if a is not score]
    if node.op != "call_function" or node.kwargs or len(others) != len(node.args) - 1:
        return node is score.graph.output_node()
    if node.target is _aten.add.Tensor:
        return True
    if node.target is _aten.sub.Tensor:
        return node.args[0] is score
    return node.target is _aten.where.self and node.args[1] is score and _is_least(node.args[2])


def _is_least(node: Any) -> bool:
    """True for the number -inf as a tensor."""
    makers = (_aten.scalar_tensor.default, _aten.full.default)
    return isinstance(node, fx.Node) and node.target in makers and -math.inf in node.args


def _is_score(graph: fx.Graph) -> bool:
    """True for the score function that returns the score."""
    return graph.output_node().args[0] is next(iter(graph.nodes))


def is_causal(graph: fx.Graph) -> bool:
    """True for the mask `i >= j` of the arguments `b, h, i, j`."""
    _, _, i, j = list(graph.nodes)[:4]
    made = graph.output_node().args[0]
    return isinstance(made, fx.Node) and (made.target, made.args) in (
        (_aten.ge.Tensor, (i, j)),
        (_aten.le.Tensor, (j, i)),
    )


def is_everything(graph: fx.Graph) -> bool:
    """True for the mask that leaves nothing out."""
    made = graph.output_node().args[0]
    return isinstance(made, fx.Node) and made.target is _aten.new_ones.default
