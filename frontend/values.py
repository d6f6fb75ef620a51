"""What the frontend knows of an FX value: whether we can hold it, its type, its layout and its source line."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

import torch
from torch import fx

from ..dialects.dtypes import FLOAT8, FROM_TORCH
from ..dialects.record import Location, TensorType
from . import compat, sizes
from .layout import Layout, layout_of

_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
_OURS = str(Path(__file__).with_name("api.py"))  # whose module calls the function that lamina.compile was given


class NotOurs(ValueError):
    """A value that a graph record cannot hold: its device, element type, storage layout or sizes."""


def dtype_name(dtype: torch.dtype) -> str:
    """Our name of a torch dtype; NotOurs for complex, quantised and other types."""
    name = FROM_TORCH.get(str(dtype).removeprefix("torch."))
    if name is None:
        raise NotOurs(f"element type {dtype}")
    return name


@functools.cache
def torch_dtype(name: str) -> torch.dtype:
    """The torch dtype of one of our names."""
    from ..dialects.dtypes import DTYPES

    return getattr(torch, DTYPES[name].torch)


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor whose elements numpy has no type for (bf16, f8…) as integers; others unchanged."""
    if tensor.dtype is torch.bfloat16:
        return tensor.view(torch.int16)
    return tensor.view(torch.uint8) if dtype_name(tensor.dtype) in FLOAT8 else tensor


def tensor_type(value: Any) -> TensorType:
    """The type of a (fake) tensor in torch's symbol names; NotOurs says why there is none."""
    if not isinstance(value, torch.Tensor):
        raise NotOurs(f"a {type(value).__name__}, not a tensor")
    if value.device.type not in ("cpu", "cuda"):
        raise NotOurs(f"a tensor on {value.device}")
    if value.layout is not torch.strided or value.is_quantized:
        raise NotOurs("a sparse or quantised tensor")
    dtype = dtype_name(value.dtype)
    if value.is_neg() or value.is_conj():
        raise NotOurs("a lazily negated or conjugated tensor")
    try:
        return TensorType(dtype, tuple(sizes.to_dim(d) for d in value.shape))
    except sizes.SizeError as error:
        raise NotOurs(str(error)) from None


def layout(value: torch.Tensor) -> Layout:
    """Where the elements of a (fake) tensor lie; NotOurs when its strides have no form."""
    try:
        shape = tuple(sizes.to_dim(d) for d in value.shape)
        strides = tuple(sizes.stride_to_dim(s) for s in value.stride())
        return layout_of(shape, strides, [sizes.hint(s) for s in value.stride()])
    except sizes.SizeError as error:
        raise NotOurs(str(error)) from None


def storage_owners(graph: fx.Graph) -> dict[tuple[int, torch.dtype], fx.Node]:
    """For every storage and element type of the graph's tensors, the first node that has it: the one that is no view."""
    owners: dict[tuple[int, torch.dtype], fx.Node] = {}
    for node in graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and value.layout is torch.strided:
            owners.setdefault(buffer_key(value), node)
    return owners


def buffer_key(value: torch.Tensor) -> tuple[int, torch.dtype]:
    """Equal for tensors that are views of one buffer."""
    return compat.storage_key(value), value.dtype


def is_view(node: fx.Node) -> bool:
    """True for ops whose result is part of an operand's memory (`expand`)."""
    schema = getattr(node.target, "_schema", None)
    return schema is not None and any(r.alias_info and not r.alias_info.is_write for r in schema.returns)


def result_types(node: fx.Node) -> Any:
    """The TensorType that eager gives for `node`, or a tuple of them (None for what is not a tensor of ours)."""
    value = node.meta.get("val")
    if isinstance(value, (list, tuple)):
        return tuple(tensor_type(v) if isinstance(v, torch.Tensor) else None for v in value)
    return tensor_type(value)


def location(node: fx.Node) -> Location:
    """The user's line of `node` and the module path that made it.

    The line is that of the innermost frame of its stack trace which is neither torch's own, such as `nn.Linear.forward`,
    nor ours; in a program without one it is torch's.
    """
    frames = _FRAME.findall(node.meta.get("stack_trace") or "")
    frames = [f for f in frames if f[0] != _OURS]
    users = [f for f in frames if not compat.in_torch(f[0])]
    file, line = (users or frames or [("", 0)])[-1]
    modules = node.meta.get("nn_module_stack") or {}
    path = next(reversed(modules.values()))[0] if modules else ""
    return Location(file, int(line), _readable(path) or node.name)


def _readable(path: str) -> str:
    """`L['self']._modules['layers']._modules['0']` as `layers.0`."""
    parts = re.findall(r"\['([^']+)'\]|\.(\w+)", path)
    names = [a or b for a, b in parts if (a or b) not in ("_modules", "self", "fn")]
    return ".".join(names)
