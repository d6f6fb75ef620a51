"""Where a graph runs: on the CPU, or on the first GPU that its tensors name. What is elsewhere stays with eager."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from ..dialects import dims
from ..dialects.dtypes import is_float
from ..dialects.families.channels_last_conv import is_one_convolution, suits_channels_last
from ..dialects.families.scatter import placed, scatters_rows, sorts_rows
from ..dialects.families.sorting import takes_long_rows, takes_short_rows
from ..dialects.op import registry
from ..dialects.record import Node, TensorType
from .aten.registry import Unsupported
from .values import NotOurs

FEW_ROWS = 16  # up to which a product takes the time of reading its second operand, whoever computes it
WIDEST_HEAD = {"bf16": 256, "f16": 256, "f32": 128}  # elements; wider ones have no room in registers
# elements of all rows of a `topk`, up to which they are put in order in the time of a few launches: by counts of instructions,
# about 6000 of a warp for 512 elements; not measured
MOST_IN_ORDER = 1 << 24
NARROW_HEAD = 64  # up to which reading a mask of floats takes more time than the products
# categories of ops whose kernels have a kind of their own, and that kind (direct ops: their names)
_ROOTS = {"matmul": "matmul", "conv": "conv", "attention": "attention"}


def device_of(gm: fx.GraphModule) -> torch.device:
    """The device that the graph is compiled for."""
    for node in gm.graph.nodes:
        for value in _tensors(node):
            if value.device.type == "cuda":
                return value.device
    return torch.device("cpu")


def check_device(node: fx.Node, device: torch.device) -> None:
    """Raise NotOurs if `node` reads or makes a tensor on another device."""
    for near in (*node.all_input_nodes, node):
        for value in _tensors(near):
            if near.op == "get_attr" and value.dim() == 0:
                continue  # a constant
            if value.device != device:
                raise NotOurs(f"a tensor on {value.device} in a graph for {device}")


def check_kernels(nodes: Sequence[Node], types: Sequence[TensorType], device: torch.device, first: int = 0) -> None:
    """Raise Unsupported for an op, from number `first` on, that the device has no kernel for, or only one that torch's library outruns."""
    if device.type == "cpu":
        return
    from ..compiler.levels import GPU_KINDS

    for node in nodes[first:]:
        category = registry(node.op).category
        kind = node.op if category == "direct" else _ROOTS.get(category)
        if kind not in (None, "conv", *GPU_KINDS):
            raise Unsupported(f"no GPU kernel of '{node.op}' yet")
        if node.op == "scatter":
            _check_scatter(node, nodes, types)
        if kind == "attention":
            _check_mask(node, nodes, types)
        if check := _CHECKS.get(node.op) or _CHECKS.get(kind or ""):
            check(node, types, device)


def _check_convolution(node: Node, types: Sequence[TensorType], device: torch.device) -> None:
    from ..compiler.api import target_convolves

    x, w = _operands(node, types)[:2]
    suits = suits_channels_last(x, w, node.attributes) and is_one_convolution(w, node.attributes)
    if not suits or not target_convolves(_target(device)):
        raise Unsupported("no GPU kernel that is faster than torch's library at this convolution")


def _check_index_put(node: Node, types: Sequence[TensorType], device: torch.device) -> None:
    x, _, *indices = _operands(node, types)
    if node.attributes["accumulate"] and not sorts_rows(x, indices, node.attributes["dims"]):
        raise Unsupported("no fast GPU kernel that adds at positions yet")


def _is_of_rows(index: int | None, nodes: Sequence[Node], types: Sequence[TensorType]) -> bool:
    """True if `index` is expanded from one element for each row."""
    assert index is not None
    maker = next((n for n in nodes if index in n.results), None)
    if maker is None or maker.op != "expand":
        return types[index].rank == 1
    (given,) = _operands(maker, types)
    return given.rank == types[index].rank and all(n == 1 for n in given.shape[1:])


def _check_topk(node: Node, types: Sequence[TensorType], device: torch.device) -> None:
    (x,) = _operands(node, types)
    if not takes_long_rows(x, node.attributes):
        raise Unsupported("no fast GPU kernel of many elements in order, or of rows of unknown length, yet")
    if not takes_short_rows(x, node.attributes) and isinstance(x.numel, int) and x.numel > MOST_IN_ORDER:
        raise Unsupported("torch's radix selection reads many long rows sooner than they are put in order")


def _check_scatter(node: Node, nodes: Sequence[Node], types: Sequence[TensorType]) -> None:
    x, index, _ = _operands(node, types)
    few = node.attributes["reduce"] == "none" or placed(x, index, node.attributes)
    if not few and not (scatters_rows(x, index, node.attributes) and _is_of_rows(node.operands[1], nodes, types)):
        raise Unsupported("no fast GPU kernel that combines at positions yet")


def _check_groups(node: Node, types: Sequence[TensorType], device: torch.device) -> None:
    raise Unsupported("no fast GPU kernel of products in groups yet")


def _check_product(node: Node, types: Sequence[TensorType], device: torch.device) -> None:
    result = types[node.results[0]]
    rows = dims.product(result.shape[:-1])
    if result.dtype == "f64" and not (isinstance(rows, int) and rows <= FEW_ROWS):
        raise Unsupported("torch's library is faster at products in f64: it uses matrix units for them")


def _check_attention(node: Node, types: Sequence[TensorType], device: torch.device) -> None:
    """Attention is ours on tensor cores and where torch's kernels are not faster; in f32 for one query."""
    from ..compiler.api import target_attends

    q, _, v, _ = _operands(node, types)
    widest = WIDEST_HEAD.get(q.dtype)
    if widest is None:
        raise Unsupported(f"no GPU kernel for attention in {q.dtype}")
    if not all(isinstance(t.shape[-1], int) and t.shape[-1] <= widest for t in (q, v)):
        raise Unsupported(f"no GPU kernel for attention with heads of symbolic width or of more than {widest} elements")
    if q.dtype == "f32" and q.shape[-2] != 1:
        raise Unsupported("torch's kernel is faster at attention of several queries in f32")
    if not target_attends(_target(device)):
        raise Unsupported("no kernel for attention on this GPU yet")


def _check_mask(node: Node, nodes: Sequence[Node], types: Sequence[TensorType]) -> None:
    q, _, _, mask = _operands(node, types)
    if mask is None or mask.rank < 2 or mask.shape[-2] == 1 or not isinstance(q.shape[-1], int):
        return
    if q.shape[-1] <= NARROW_HEAD and not _is_of_flags(node.operands[3], nodes, types):
        raise Unsupported("torch's kernel is faster at attention of narrow heads with a mask of floats")


def _is_of_flags(value: int | None, nodes: Sequence[Node], types: Sequence[TensorType]) -> bool:
    """True for bools and numbers of positions, and floats that are chosen by such: a mask that torch's dispatch made of bools."""
    if value is None or not is_float(types[value].dtype) or types[value].numel == 1:
        return True
    maker = next((n for n in nodes if value in n.results), None)
    if maker is None or registry(maker.op).category not in ("view", "pointwise", "creation"):
        return False
    return all(_is_of_flags(v, nodes, types) for v in maker.operands)


# op or kind of kernel -> what it must be besides
_CHECKS: dict[str, Callable[[Node, Sequence[TensorType], torch.device], None]] = {
    "conv": _check_convolution,
    "index_put": _check_index_put,
    "topk": _check_topk,
    "grouped_matmul": _check_groups,
    "matmul": _check_product,
    "attention": _check_attention,
}


def _operands(node: Node, types: Sequence[TensorType]) -> list[Any]:
    """The types of a node's operands; None for one that is absent."""
    return [None if v is None else types[v] for v in node.operands]


def _target(device: torch.device) -> str:
    from .calls.cuda_launcher import index_of, target_for

    return target_for(index_of(device))


def _tensors(node: fx.Node) -> list[torch.Tensor]:
    value = node.meta.get("val")
    return [v for v in (value if isinstance(value, (list, tuple)) else (value,)) if isinstance(v, torch.Tensor)]
