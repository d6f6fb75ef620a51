"""The tensors of a compiled part as functions of the symbols: what comes in, what goes out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ...dialects import dims
from ...dialects.dims import Dim
from ...runtime.errors import LaminaRuntimeError
from .. import compat, values
from ..part import OutputSpec, Part


class Signature:
    """Sizes and strides of a part's tensors. Arguments are its input tensors, then its int symbols."""

    def __init__(self, part: Part):
        self.part = part
        self.tensors = len(part.inputs)
        self.names = [i.name for i in part.graph.inputs if i.kind != "scalar"]
        self.layouts = [values.layout(n.meta["val"]) for n in part.inputs]
        self.sources = _symbol_sources(part)
        self.outputs = part.outputs
        where = {n: i for i, n in enumerate(part.inputs)}
        self.targets = [None if o.mutates is None else where[o.mutates] for o in part.outputs]

    def symbols(self, args: Sequence[Any]) -> tuple[int, ...]:
        """The value of every symbol of the record, from the arguments."""
        return tuple(args[i] if dim < 0 else args[i].shape[dim] for i, dim in self.sources)

    def named(self, symbols: Sequence[int]) -> dict[str, int]:
        """Symbol values by torch's names, in which `layouts` and `outputs` are written."""
        return dict(zip(self.part.order, symbols))


def evaluate(shape: Sequence[Dim], known: Mapping[str, int]) -> tuple[int, ...]:
    """The values of sizes."""
    return tuple(d if isinstance(d, int) else dims.evaluate(d, known) for d in shape)


def allocate(spec: OutputSpec, known: Mapping[str, int]) -> torch.Tensor:
    """An uninitialised result."""
    return compat.empty_strided(evaluate(spec.size, known), evaluate(spec.stride, known), spec.dtype)


def laid_out(tensor: torch.Tensor, size: tuple[int, ...], stride: tuple[int, ...], name: str) -> torch.Tensor:
    """Input `name` with strides that address its elements as `stride` does: itself, or a copy; it must have `size`."""
    if tensor.shape != size:
        raise LaminaRuntimeError(f"input '{name}' has sizes {list(tensor.shape)} and must have {list(size)}")
    found = tensor.stride()
    if found == stride or tensor.numel() <= 1 or all(n == 1 or a == b for n, a, b in zip(size, found, stride)):
        return tensor
    with torch.no_grad():
        if tensor.is_cuda:
            return torch.empty_strided(size, stride, dtype=tensor.dtype, device=tensor.device).copy_(tensor)
        return compat.empty_strided(size, stride, tensor.dtype).copy_(tensor)


def _symbol_sources(part: Part) -> list[tuple[int, int]]:
    """Per symbol of the record: the argument that gives it, and the dim of that tensor (-1: an int argument)."""
    found = {name: (len(part.inputs) + i, -1) for i, name in enumerate(part.symbols)}
    for number, node in enumerate(part.inputs):
        for dim, size in enumerate(node.meta["val"].shape):
            if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol:
                found.setdefault(size.node.expr.name, (number, dim))
    return [found[name] for name in part.order]
