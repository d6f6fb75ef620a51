"""Constants that a GPU's graph computes on the CPU at every call: computed once, when it is compiled.

    s = torch.tensor(64.0).sqrt()                   # of no dims, on the CPU
    i = torch.arange(n).to("cuda")
    y = x / s + i                                   # x on the GPU: s and i become constants of its kernels

A graph runs on one device; who reads what is elsewhere would stay with eager, between compiled parts.
"""

from __future__ import annotations

import operator

import torch
from torch import fx

from . import compat
from .devices import device_of
from .values import is_view

MOST_BYTES = 1 << 16  # of a constant


def fold_host_constants(gm: fx.GraphModule) -> None:
    """Let ops on the graph's GPU read constants for what is computed of constants on the CPU, or copied from there."""
    device = device_of(gm)
    if device.type == "cpu":
        return
    known: dict[fx.Node, torch.Tensor] = {}
    with compat.real_tensors():
        for node in gm.graph.nodes:
            value = _evaluated(gm, node, known)
            if value is not None:
                known[node] = value
    for number, (node, value) in enumerate(known.items()):
        readers = [u for u in node.users if u not in known and _reads_values(u, node, device)]
        if readers and node.op == "call_function":
            constant = _constant(gm, f"host_constant{number}", node, value)
            for reader in readers:
                reader.replace_input_with(node, constant)
    for node in reversed(known):
        if node.op == "call_function" and not node.users:
            gm.graph.erase_node(node)


def _evaluated(gm: fx.GraphModule, node: fx.Node, known: dict[fx.Node, torch.Tensor]) -> torch.Tensor | None:
    """What `node` makes of constants; None if that is not known, not the same at every call, or large."""
    expected = node.meta.get("val")
    if not isinstance(expected, torch.Tensor) or not all(isinstance(n, int) for n in expected.shape):
        return None
    if expected.numel() * expected.element_size() > MOST_BYTES:
        return None
    if node.op == "get_attr":
        found = operator.attrgetter(str(node.target))(gm)
        return found if isinstance(found, torch.Tensor) and found.device.type == "cpu" else None
    if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
        return None
    if compat.is_mutation(node.target) or torch.Tag.nondeterministic_seeded in node.target.tags:
        return None
    if not all(n in known for n in node.all_input_nodes):
        return None
    if not node.all_input_nodes and expected.device.type != "cpu":
        return None  # made on the GPU by its kernels
    try:
        args, kwargs = fx.node.map_arg((node.args, dict(node.kwargs)), known.__getitem__)
        value = node.target(*args, **kwargs)
    except Exception:  # an error of the user's op comes when it is called
        return None
    same = isinstance(value, torch.Tensor) and (value.shape, value.dtype) == (expected.shape, expected.dtype)
    return value if same and value.device == expected.device else None


def _reads_values(reader: fx.Node, node: fx.Node, device: torch.device) -> bool:
    """True if `reader` makes something new on `device` of the elements of `node`."""
    if reader.op != "call_function" or compat.is_mutation(reader.target) or is_view(reader):
        return False
    made = reader.meta.get("val")
    if not isinstance(made, torch.Tensor) or made.device != device:
        return False
    value = node.meta["val"]
    return value.device == device or value.dim() == 0


def _constant(gm: fx.GraphModule, name: str, node: fx.Node, value: torch.Tensor) -> fx.Node:
    """A node for `value`, which gm keeps, at the place of `node`."""
    gm.register_buffer(name, value, persistent=False)
    with gm.graph.inserting_before(node):
        constant = gm.graph.get_attr(name)
    constant.meta.update(node.meta)
    return constant
