"""How a training step is split, and the ops it takes apart, so that less is saved and more computed again in the backward pass.

An activation function's result is computed again from what its gradient needs anyway, also where a product reads it: a pointwise
kernel, for a fifth to a quarter of all that transformers save (ViT-B 1883 -> 1418 MB, BERT-base 1228 -> 921, GPT-2 small 411 -> 333).

The logits of a language model are by far its largest values, and `log_softmax` of them, in f32, is twice as large. In parts

    shifted = x - amax(x)        log_softmax = shifted - log(sum(exp(shifted)))

the partitioner saves `x`, in 16 bits, and two numbers a row; the rest is pointwise. It computes nothing again behind a
`detach`, which `tanh` and others put before the result that their backward pass reads; it does behind an `alias`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils.checkpoint import CheckpointPolicy

from . import compat
from .attention_seeds import drop_seeds
from .values import is_view

LARGE = 1 << 20  # elements, from which on what is saved counts
_MEAN = 1  # at::Reduction
_HALVES = (torch.float16, torch.bfloat16)
_aten = torch.ops.aten


def _log_softmax(x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    """In f32 for halves, rounded once, as eager."""
    if not _is_large(x):
        return NotImplemented
    wide = x.float() if x.dtype in _HALVES else x
    shifted = wide - wide.amax(dim, keepdim=True)
    result = shifted - shifted.exp().sum(dim, keepdim=True).log()
    return result if half_to_float else result.to(x.dtype)


def _log_softmax_backward(grad: Tensor, result: Tensor, dim: int, dtype: torch.dtype) -> Tensor:
    """`g - exp(y) * sum(g)`, likewise."""
    if not _is_large(result):
        return NotImplemented
    wide, y = (t.float() if t.dtype in _HALVES else t for t in (grad, result))
    return (wide - y.exp() * wide.sum(dim, keepdim=True)).to(dtype)


def _nll_loss_backward(
    grad: Tensor, x: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignored: int, total: Tensor
) -> Tensor:
    """`-grad` (of a mean: its share) where a row has its target, else 0: of `x` only the shape counts, which need not be saved."""
    if not _is_large(x) or x.dim() != 2 or weight is not None:
        return NotImplemented
    share = grad / total if reduction == _MEAN else grad
    zero = torch.zeros((), dtype=x.dtype, device=x.device)
    rows = torch.where(target != ignored, -share, zero).unsqueeze(1)
    classes = torch.arange(x.shape[1], device=x.device)
    return torch.where(classes == target.unsqueeze(1), rows, zero)


def _detach(x: Tensor) -> Tensor:
    """The same value; who traces has the gradient's graph already."""
    return _aten.alias.default(x) if _is_large(x) else NotImplemented


def _is_large(x: Tensor) -> bool:
    """True for values whose size counts; what is small, or of unknown size, stays whole."""
    count = x.numel()
    return isinstance(count, int) and count >= LARGE


def decompositions() -> dict[Any, Callable[..., Any]]:
    """The table for AOTAutograd."""
    return {
        _aten._log_softmax.default: _log_softmax,
        _aten._log_softmax_backward_data.default: _log_softmax_backward,
        _aten.nll_loss_backward.default: _nll_loss_backward,
        _aten.detach.default: _detach,
    }


def partition(joint: fx.GraphModule, inputs: Sequence[Any], **options: Any) -> Any:
    """Split a joint graph into forward and backward by torch's minimal cut.

    What the forward graph computes of the old value of an argument that it writes is kept where gradients need it:
    torch (2.13) lets the backward graph compute it again, by then from the new value. That holds for each of several results
    too: inside `torch.utils.checkpoint` they are marked one by one, and the cut finds no way if only some are kept.
    """
    drop_seeds(joint)
    nodes = [n for n in joint.graph.nodes if n.op != "output"]
    after: set[fx.Node] = set()  # of tangents: the backward graph
    for node in nodes:
        if compat.is_tangent(node) or not after.isdisjoint(node.all_input_nodes):
            after.add(node)
    needed: set[fx.Node] = set()  # in it
    for node in reversed(nodes):
        if node not in after and not (after.isdisjoint(node.users) and needed.isdisjoint(node.users)):
            needed.add(node)
    for node in nodes:
        if node.target is _aten.copy_.default and node not in after:
            for reader in needed.intersection(_readers(node.args[0])):
                for kept in (reader, *(u for u in reader.users if u.target is operator.getitem)):
                    kept.meta["recompute"] = CheckpointPolicy.MUST_SAVE
    return compat.minimal_cut(joint, inputs, **options)


def _readers(value: fx.Node) -> Iterator[fx.Node]:
    """What reads the elements of a node, also through views."""
    for user in value.users:
        if is_view(user):
            yield from _readers(user)
        else:
            yield user
