"""`Builder` adds nodes to an FX graph, with fake values; `Pair` is a complex tensor or number as its two parts."""

from __future__ import annotations

import operator
from typing import Any, NamedTuple

import torch
from torch import fx

from .. import compat

aten = torch.ops.aten
_REAL = {torch.complex64: torch.float32, torch.complex128: torch.float64, torch.complex32: torch.float16}


class Pair(NamedTuple):
    """`re + im i`: two real nodes, or two floats."""

    re: Any
    im: Any


def is_complex(value: Any) -> bool:
    """True for a node that is a complex tensor."""
    return isinstance(value, fx.Node) and isinstance(t := value.meta.get("val"), torch.Tensor) and t.is_complex()


def real_dtype(dtype: torch.dtype) -> torch.dtype:
    """The type of the parts of a complex type; a real type unchanged."""
    return _REAL.get(dtype, dtype)


class Builder:
    """Makes real nodes before `node`, the one that is being rewritten, with its source line; `made` has all."""

    def __init__(self, graph: fx.Graph):
        self.graph = graph
        self.node: Any = None
        self.made: set[fx.Node] = set()

    @property
    def dtype(self) -> torch.dtype:
        """The real type of the parts of the result."""
        return real_dtype(self.node.meta["val"].dtype)

    def call(self, op: Any, *args: Any, **kwargs: Any) -> fx.Node:
        """The node `op(*args, **kwargs)`; its fake value is `op` of theirs."""
        given, named = fx.map_arg((args, kwargs), lambda n: n.meta["val"])  # type: ignore[misc]
        with compat.fake_mode(self.graph):
            value = op(*given, **named)
        with self.graph.inserting_before(self.node):
            made = self.graph.call_function(op, args, kwargs)
        made.meta = {k: v for k, v in self.node.meta.items() if k in ("stack_trace", "nn_module_stack")}
        made.meta["val"] = value
        self.made.add(made)
        return made

    def item(self, items: fx.Node, index: int) -> fx.Node:
        """Result `index` of a node that has several."""
        return self.call(operator.getitem, items, index)

    def part(self, x: fx.Node, index: int) -> fx.Node:
        """Place `index` of the last dimension."""
        return self.call(aten.select.int, x, -1, index)

    def cast(self, x: Any, dtype: torch.dtype) -> Any:
        """`x` as `dtype`; numbers, and what is of that type already, unchanged."""
        if not isinstance(x, fx.Node) or x.meta["val"].dtype == dtype:
            return x
        return self.call(aten._to_copy.default, x, dtype=dtype)

    # -- arithmetic of nodes; one of two operands may be a number ---------------------------------------------
    def add(self, x: Any, y: Any) -> fx.Node:
        return self.call(aten.add.Tensor, *_node_first(x, y))

    def mul(self, x: Any, y: Any) -> fx.Node:
        return self.call(aten.mul.Tensor, *_node_first(x, y))

    def sub(self, x: Any, y: Any) -> fx.Node:
        return self.call(aten.sub.Tensor, x, y) if isinstance(x, fx.Node) else self.call(aten.rsub.Scalar, y, x)

    def div(self, x: fx.Node, y: Any) -> fx.Node:
        return self.call(aten.div.Tensor, x, y)

    def neg(self, x: Any) -> Any:
        return self.call(aten.neg.default, x) if isinstance(x, fx.Node) else -x

    def zeros_like(self, x: fx.Node) -> fx.Node:
        return self.call(aten.zeros_like.default, x)


def _node_first(x: Any, y: Any) -> tuple[Any, Any]:
    return (x, y) if isinstance(x, fx.Node) else (y, x)
