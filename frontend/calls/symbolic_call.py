"""A call of a part for all sizes: what `launcher.Call` says for one tuple, as expressions over the program's symbols."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

import torch

from ...dialects import dims
from ...dialects.dims import Dim
from ...dialects.strides import row_major
from .. import values

if TYPE_CHECKING:
    from .launcher import Native

Shape = tuple[Dim, ...]


@dataclass(frozen=True)
class SymbolicCall:
    """Sizes and strides of the argument tensors, the buffers to allocate, and which of them each result is."""

    sizes: list[Shape]
    strides: list[Shape]
    buffers: list[tuple[Shape, Shape, torch.dtype]]
    order: list[int]


def symbolic_call(native: Native) -> SymbolicCall | None:
    """The call of a part with symbols; None if it has none, or if not all results are whole buffers whatever the sizes."""
    plan = native.program.plan
    if not plan["symbols"]:
        return None
    ours = {name: dims.symbol(s["name"]) for name, s in zip(native.part.order, plan["symbols"])}

    def named(shape: Sequence[Dim]) -> Shape:
        return tuple(d if isinstance(d, int) else dims.substitute(d, ours) for d in shape)

    shapes = [_parsed(b["shape"]) for b in plan["buffers"]]
    buffers = [(s, row_major(s), values.torch_dtype(b["dtype"])) for s, b in zip(shapes, plan["buffers"])]
    order = list[int]()
    for spec, output in zip(native.part.outputs, plan["outputs"]):
        if spec.mutates is not None:
            continue
        space, index = output["storage"]
        shape, strides = _parsed(output["shape"]), _parsed(output["strides"])
        whole = space == "output" and dims.parse(output["offset"]) == 0 and strides == row_major(shape)
        if not (whole and prod(shape) == prod(shapes[index]) and output["dtype"] == plan["buffers"][index]["dtype"]):
            return None
        order.append(index)
        buffers[index] = named(spec.size), named(spec.stride), spec.dtype
    if sorted(order) != list(range(len(buffers))):
        return None
    layouts = native.signature.layouts
    return SymbolicCall([named(l.shape) for l in layouts], [named(l.strides) for l in layouts], buffers, order)


def _parsed(shape: Sequence[str | int]) -> Shape:
    return tuple(dims.parse(d) for d in shape)
