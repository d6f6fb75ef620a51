"""Where a graph runs: on the CPU, or on the first GPU that its tensors name. What is elsewhere stays with eager."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import fx

from ..dialects import dims
from ..dialects.families.channels_last_conv import suits_channels_last
from ..dialects.op import registry
from ..dialects.record import Node, TensorType
from .aten.registry import Unsupported
from .values import NotOurs

FEW_ROWS = 16  # up to which a product takes the time of reading its second operand, whoever computes it
WIDEST_HEAD = {"bf16": 256, "f16": 256, "f32": 128}  # elements; wider ones have no room in registers
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
            if value.device != device:
                raise NotOurs(f"a tensor on {value.device} in a graph for {device}")


def check_kernels(nodes: Iterable[Node], types: Sequence[TensorType], device: torch.device) -> None:
    """Raise Unsupported for an op that the device has no kernel for, or only one that torch's library outruns."""
    if device.type == "cpu":
        return
    from ..compiler.api import target_attends, target_convolves
    from ..compiler.levels import GPU_KINDS
    from .calls.cuda_launcher import index_of, target_for

    for node in nodes:
        category = registry(node.op).category
        kind = node.op if category == "direct" else _ROOTS.get(category)
        if kind == "conv":
            x, w = (types[v] for v in node.operands[:2])  # type: ignore[index]
            if not suits_channels_last(x, w, node.attributes) or not target_convolves(target_for(index_of(device))):
                raise Unsupported("no GPU kernel that is faster than torch's library at this convolution")
        elif kind is not None and kind not in GPU_KINDS:
            raise Unsupported(f"no GPU kernel of '{node.op}' yet")
        if kind == "index_put" and node.attributes["accumulate"]:
            raise Unsupported("no fast GPU kernel that adds at positions yet")
        if kind in ("cumsum", "cumprod"):
            x = types[node.operands[0]]  # type: ignore[index]
            if x.rank == 0 or dims.product(x.shape[node.attributes["dim"] % x.rank + 1 :]) != 1:
                raise Unsupported("no fast GPU kernel that scans along another dim than the last yet")
        if node.op == "grouped_matmul":
            raise Unsupported("no fast GPU kernel of products in groups yet")
        if kind == "matmul" and types[node.results[0]].dtype == "f64":
            rows = dims.product(types[node.results[0]].shape[:-1])
            if not isinstance(rows, int) or rows > FEW_ROWS:
                raise Unsupported("torch's library is faster at products in f64: it uses matrix units for them")
        if kind == "attention":
            _check_attention(node, types)
            if not target_attends(target_for(index_of(device))):
                raise Unsupported("no kernel for attention on this GPU yet")


def _check_attention(node: Node, types: Sequence[TensorType]) -> None:
    """Attention is ours on tensor cores and where torch's kernels are not faster; in f32 for one query."""
    q, v = types[node.operands[0]], types[node.operands[2]]  # type: ignore[index]
    widest = WIDEST_HEAD.get(q.dtype)
    if widest is None:
        raise Unsupported(f"no GPU kernel for attention in {q.dtype}")
    if not all(isinstance(t.shape[-1], int) and t.shape[-1] <= widest for t in (q, v)):
        raise Unsupported(f"no GPU kernel for attention with heads of symbolic width or of more than {widest} elements")
    if q.dtype == "f32" and q.shape[-2] != 1:
        raise Unsupported("torch's kernel is faster at attention of several queries in f32")
    mask = None if node.operands[3] is None else types[node.operands[3]]
    if mask is not None and mask.dtype != "bool" and mask.rank > 1 and mask.shape[-2] != 1:
        if isinstance(q.shape[-1], int) and q.shape[-1] <= NARROW_HEAD:
            raise Unsupported("torch's kernel is faster at attention of narrow heads with a mask of floats")


def _tensors(node: fx.Node) -> list[torch.Tensor]:
    value = node.meta.get("val")
    return [v for v in (value if isinstance(value, (list, tuple)) else (value,)) if isinstance(v, torch.Tensor)]
