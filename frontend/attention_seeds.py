"""Attention of a training graph without what only dropout needs, so that our kernel can take its forward pass.

CUDA's attention ops give their backward pass more than the log-sum-exp: the seed and offset of dropout, the lengths of packed
sequences (none) and the longest length. Without dropout the seeds are read by nobody, but backward wants tensors there:

    out, lse, cum_q, cum_k, max_q, max_k, seed, offset, _ = _scaled_dot_product_flash_attention(q, k, v)
    … = _scaled_dot_product_flash_attention_backward(…, out, lse, cum_q, cum_k, max_q, max_k, 0.0, causal, seed, offset)

becomes

    out, lse = _scaled_dot_product_flash_attention(q, k, v)
    … = _scaled_dot_product_flash_attention_backward(…, out, lse, None, None, 1024, 1024, 0.0, causal, zeros, zeros)
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

_aten = torch.ops.aten
# op -> where its dropout's probability is among the arguments, and its default
_DROPOUT = {
    _aten._scaled_dot_product_flash_attention.default: 3,
    _aten._scaled_dot_product_efficient_attention.default: 5,
    _aten._scaled_dot_product_cudnn_attention.default: 5,
}
_KEPT = 2  # results: the output and the log-sum-exp
_LONGEST_QUERY = 4


def drop_seeds(joint: fx.GraphModule) -> None:
    """Rewrite all attention of a joint graph that has no dropout."""
    zeros: dict[Any, fx.Node] = {}
    for node in list(joint.graph.nodes):
        place = _DROPOUT.get(node.target)
        if place is None or _dropout(node, place):
            continue
        for item in list(node.users):
            if item.target is operator.getitem and item.args[1] >= _KEPT:
                _replace(item, node, zeros)


def _dropout(node: fx.Node, place: int) -> Any:
    return node.args[place] if len(node.args) > place else node.kwargs.get("dropout_p", 0.0)


def _replace(item: fx.Node, attention: fx.Node, zeros: dict[Any, fx.Node]) -> None:
    """What stands for one of the further results: nothing, a size, or zeros that all attention shares."""
    known, query = item.meta.get("val"), attention.args[0]
    assert isinstance(query, fx.Node)
    new: Any = known
    if isinstance(known, torch.Tensor) and item.users:
        key = known.shape, known.dtype, query.meta["val"].device
        new = zeros.get(key) or zeros.setdefault(key, _zeros(attention.graph, query, *key))
    elif isinstance(known, torch.SymInt):
        new = _length(attention, item.args[1] == _LONGEST_QUERY, known)
    for user in list(item.users):
        user.args, user.kwargs = (fx.map_arg(a, lambda n: new if n is item else n) for a in (user.args, user.kwargs))
    item.graph.erase_node(item)


def _length(attention: fx.Node, of_query: bool, known: torch.SymInt) -> fx.Node:
    """A node of the number of queries or keys."""
    with attention.graph.inserting_before(attention):
        made = attention.graph.call_function(_aten.sym_size.int, (attention.args[0 if of_query else 1], 2))
    made.meta["val"] = known
    return made


def _zeros(graph: fx.Graph, query: fx.Node, shape: Any, dtype: torch.dtype, device: torch.device) -> fx.Node:
    """A node of zeros, before all others that compute."""
    first = next(n for n in graph.nodes if n.op != "placeholder")
    with graph.inserting_before(first):
        made = graph.call_function(_aten.zeros.default, (list(shape),), {"dtype": dtype, "device": device})
    with query.meta["val"].fake_mode:
        made.meta["val"] = torch.zeros(shape, dtype=dtype, device=device)
    return made
