"""Sizes that attention takes to be equal, made one symbol where torch has two.

Dynamo gives the dims of every input symbols of their own, and learns that two are equal when a fake kernel compares
them. Attention's does not: the keys and values of a growing cache arrive as `[B, H, s1, D]` and `[B, H, s2, D]`. A call
that violates the guard `s1 = s2` is traced anew, and its attention runs in eager.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import fx

from . import sizes

_ATTENTION = ("aten::scaled_dot_product_attention", "aten::_scaled_dot_product_")


def unify(gm: fx.GraphModule) -> None:
    """Guard on the sizes of attention's operands that must be equal, and are: torch then has one symbol for them."""
    for node in gm.graph.nodes:
        if isinstance(node.target, torch._ops.OpOverload) and node.target.name().startswith(_ATTENTION):
            for a, b in _pairs(node):
                symbolic = isinstance(a, torch.SymInt) or isinstance(b, torch.SymInt)
                if symbolic and sizes.hint(a) is not None and sizes.hint(a) == sizes.hint(b):
                    bool(a == b)  # asked for a truth value, torch adds the guard


def _pairs(node: fx.Node) -> Iterator[tuple[Any, Any]]:
    """The sizes that are one dim of attention: of q, k and v, and of a mask that broadcasts to `[…, Sq, Skv]`."""
    q, k, v = map(_shape, node.args[:3])
    yield from _same(q, k, (-1, -3, -4))
    yield from _same(k, v, (-2, -3, -4))
    mask = node.kwargs.get("attn_mask") or (node.args[3] if len(node.args) > 3 else None)
    if isinstance(mask, fx.Node):
        yield from _same((*q[:-1], k[-2]), _shape(mask), (-1, -2, -3, -4))


def _shape(node: Any) -> Sequence[Any]:
    return node.meta["val"].shape


def _same(a: Sequence[Any], b: Sequence[Any], dims: Sequence[int]) -> Iterator[tuple[Any, Any]]:
    return ((a[i], b[i]) for i in dims if -i <= min(len(a), len(b)))
