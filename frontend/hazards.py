"""Graphs for which what torch says at trace time is not what eager does; such ops, or graphs, are left to eager."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx

from . import compat

# Ops that eager never refuses an empty operand, and whose value then is plain: an identity, NaN, or the other operand.
_PLAIN_OF_NOTHING = frozenset(
    getattr(torch.ops.aten, name)
    for name in "cat mm bmm addmm baddbmm addbmm mv addmv dot vdot linear matmul sum prod any all mean var var_mean constant_pad_nd"
    " index_put scatter scatter_add slice_scatter new_zeros new_ones new_full new_empty slice_backward diagonal_backward".split()
)

# Ops whose sizes and strides are those of their operand's memory, not of its dims.
OF_MEMORY = frozenset(
    (
        torch.ops.aten.as_strided.default,
        torch.ops.aten.as_strided_copy.default,
        torch.ops.aten.as_strided_scatter.default,
    )
)


def strides_matter(node: fx.Node) -> bool:
    """True if an as_strided reads the buffer of `node`."""
    return any(u.target in OF_MEMORY or (_views(u, node) and strides_matter(u)) for u in node.users)


def _views(user: fx.Node, node: fx.Node) -> bool:
    a, b = user.meta.get("val"), node.meta["val"]
    return isinstance(a, torch.Tensor) and compat.storage_key(a) == compat.storage_key(b)


def is_of_unsure_strides(node: fx.Node) -> bool:
    """True if `node` is or views the result of an op whose fake kernel is known to give other strides than eager."""
    while node.op == "call_function" and node.target not in compat.UNSURE_STRIDES:
        sources = [a for a in node.all_input_nodes if isinstance(a.meta.get("val"), torch.Tensor)]
        if not sources or compat.storage_key(sources[0].meta["val"]) != compat.storage_key(node.meta["val"]):
            return False
        node = sources[0]
    return node.op == "call_function"


def makes_something_of_nothing(node: fx.Node) -> bool:
    """True if an operand has no elements and the result has some, and eager may refuse that."""

    def empty(value: Any) -> bool:
        return isinstance(value, torch.Tensor) and any(isinstance(n, int) and n == 0 for n in value.shape)

    result, packet = node.meta.get("val"), getattr(node.target, "overloadpacket", None)
    if packet in _PLAIN_OF_NOTHING or not isinstance(result, torch.Tensor):
        return False
    if packet is torch.ops.aten.linalg_vector_norm and 0 <= (*node.args, 2)[1] < math.inf:  # type: ignore[operator]
        return False  # a sum; the extremes of nothing are refused
    return not empty(result) and any(empty(a.meta.get("val")) for a in node.all_input_nodes)


def lost_writes(gm: fx.GraphModule) -> str:
    """Which writes of a Dynamo graph torch would lose before its graph reaches us; "" if none.

    * Through `unfold`: AOTAutograd's inverse of it drops elements.
    * To an f64 argument of no dimensions. Dynamo gives it a symbol as if it were a Python float; when AOTAutograd finds
      that symbol of no use it restarts Dynamo, which then removes all nodes known to be that symbol's value, and a call
      such as `x.add_(1)`, whose result is `x`, is one (`OutputGraph.remove_tensorify_specialized_graphargs`).
    """
    calls = [n for n in gm.graph.nodes if n.op in ("call_function", "call_method")]
    names = {n: n.target if isinstance(n.target, str) else getattr(n.target, "__name__", "") for n in calls}
    writes = [n for n, name in names.items() if (name.endswith("_") and not name.endswith("__")) or name == "setitem"]
    unfolded = {n for n, name in names.items() if name == "unfold" and n.target is not F.unfold}
    if unfolded and any(not unfolded.isdisjoint(_sources(n)) for n in writes):
        return "through 'unfold'"
    if any(_is_symbol(n.meta.get("example_value")) and all(u.target == "item" for u in n.users) for n in writes):
        return "to an f64 scalar tensor"
    return ""


def _sources(node: fx.Node) -> Iterator[fx.Node]:
    """What the first operand of a node may be a view of."""
    while node.all_input_nodes:
        node = node.all_input_nodes[0]
        yield node


def _is_symbol(value: Any) -> bool:
    """True for an f64 tensor that Dynamo also knows as a symbol."""
    return (
        isinstance(value, torch.Tensor)
        and value.dtype is torch.float64
        and getattr(value, "item_memo", None) is not None
    )
