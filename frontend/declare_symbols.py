"""The symbols of a record: where each is read, its bounds, and a name that is the same in equal graphs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import torch

from ..dialects import dims
from ..dialects.dims import Dim, Expr
from ..dialects.record import Graph, Symbol, TensorType
from . import compat
from .part import Naming
from .values import NotOurs


def declare_symbols(
    graph: Graph,
    symbols: Mapping[str, torch.SymInt],
    names: Naming,
    some: Collection[Dim],
    buffers: Collection[int],
) -> tuple[list[str], list[str]]:
    """Declare the symbols of `graph` as s0, s1 ... (or as `names` has them), so that equal graphs are equal records.

    A symbol that is a size of an input is read there; any other becomes an int input. Returns torch's names of
    the latter, in the order of those inputs, and of all symbols in order. `symbols` are sizes that have each of them,
    those in `some` are not 0, and the sizes of the inputs `buffers` are not those of their tensors.
    Raises NotOurs for a symbol that `symbols` lacks.
    """
    used = {name for t in graph.types for d in t.shape for name in dims.symbols(d)} | set(symbols)
    passed: list[str] = []
    renamed: dict[str, Dim] = {}
    for name in sorted(used, key=_order):
        if name not in symbols:
            raise NotOurs(f"size symbol {name} has no source")
        low, high = names.ranges.get(name) or compat.symbol_range(symbols[name], name)
        low = max(low, 1) if dims.symbol(name) in some else low
        chosen = names.symbols.get(name, f"s{len(renamed)}")
        input, dim = _source(graph, name, buffers)
        if input < 0:
            input = len(graph.inputs)
            graph.add_input(chosen, TensorType("i64", ()), "scalar")
            passed.append(name)
        renamed[name] = dims.symbol(chosen)
        graph.symbols.append(Symbol(chosen, low, high, 1, input, dim))
    _rename(graph, renamed)
    return passed, list(renamed)


def _source(graph: Graph, name: str, buffers: Collection[int]) -> tuple[int, int]:
    """The number of an input and the dim that has this size; -1 twice if none has."""
    wanted = dims.symbol(name)
    for number, declared in enumerate(graph.inputs):
        if declared.kind == "weight" or declared.value in buffers:
            continue
        for dim, size in enumerate(graph.types[declared.value].shape):
            if size == wanted:
                return number, dim
    return -1, -1


def _rename(graph: Graph, names: Mapping[str, Dim]) -> None:
    """Replace symbols in every type and attribute."""

    def renamed(value: Any) -> Any:
        if isinstance(value, Expr):
            return dims.substitute(value, names)
        return tuple(map(renamed, value)) if isinstance(value, tuple) else value

    if names:
        graph.types = [TensorType(t.dtype, renamed(t.shape)) for t in graph.types]
        graph.nodes = [replace(n, attributes={k: renamed(v) for k, v in n.attributes.items()}) for n in graph.nodes]


def _order(name: str) -> tuple[str, int]:
    return name[0], int(name[1:]) if name[1:].isdigit() else 0
