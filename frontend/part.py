"""What one compiled part of an FX graph is: a record, and how torch's tensors map to its inputs and outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import fx

from ..dialects.dims import Dim
from ..dialects.record import Graph


@dataclass
class OutputSpec:
    """One result tensor: FX node, element type, sizes and strides (torch's symbol names); `mutates` an input node."""

    node: fx.Node
    dtype: torch.dtype
    size: tuple[Dim, ...]
    stride: tuple[Dim, ...]
    mutates: fx.Node | None = None


@dataclass
class Part:
    """A record and its ties to FX: tensors in the order of its inputs, then the symbols passed as ints."""

    graph: Graph
    inputs: list[fx.Node] = field(default_factory=list)
    symbols: list[str] = field(default_factory=list)
    order: list[str] = field(default_factory=list)  # torch's name of each of the record's symbols
    outputs: list[OutputSpec] = field(default_factory=list)
    node_of: list[fx.Node] = field(default_factory=list)  # FX node per record node, for errors


@dataclass
class Naming:
    """Names that the user knows, for artifacts; without them everything is numbered.

    `order` lists the inputs that exist whether used or not, in order.
    """

    graph: str = "main"
    inputs: dict[fx.Node, str] = field(default_factory=dict)
    order: Sequence[fx.Node] = ()
    outputs: Sequence[str] = ()
    symbols: dict[str, str] = field(default_factory=dict)  # torch's name -> the user's
    ranges: dict[str, tuple[int, int | None]] = field(default_factory=dict)  # bounds by torch's name, if not as traced
