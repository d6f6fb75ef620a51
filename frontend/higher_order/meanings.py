"""What higher-order ops compute, as Python functions of their operands, in which graphs are callables.

The same function is traced, where an op is replaced by ordinary ones (expand.py), and called, where its graphs are compiled
(bodies.py). torch's own of `scan` stores each result by a scatter with indices of its size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx


class Body:
    """A graph that is called with values; where that is traced, its ops keep their source lines."""

    def __init__(self, module: fx.GraphModule):
        self.graph = module.graph
        self._interpreter = fx.Interpreter(module)

    def __call__(self, *args: Any) -> Any:
        return self._interpreter.run(*args)


Graph = Callable[..., Sequence[Any]]


def invoke_subgraph(body: Graph, _identifier: str | None, *operands: Any) -> Sequence[Any]:
    """The graph of `torch.compiler.nested_compile_region`, called."""
    return body(*operands)


def cond(pred: Any, then: Graph, otherwise: Graph, operands: Sequence[Any] = ()) -> Sequence[Any]:
    """One of two branches."""
    return (then if pred else otherwise)(*operands)


def both_branches(pred: Tensor, then: Graph, otherwise: Graph, operands: Sequence[Any] = ()) -> Sequence[Any]:
    """The same values, from both branches: what is computed may not depend on data where there is no eager."""
    return [torch.where(pred, a, b) for a, b in zip(then(*operands), otherwise(*operands))]


def scan(body: Graph, init: Sequence[Any], xs: Sequence[Tensor], extra: Sequence[Any] = ()) -> list[Any]:
    """`carry, y[i] = body(carry, x[i])`: the last carry, then the stacked results."""
    carry, rows = list(init), []
    for i in range(len(xs[0])):
        made = body(*carry, *(x[i] for x in xs), *extra)
        carry = list(made[: len(init)])
        rows.append(made[len(init) :])
    return carry + [torch.stack(column) for column in zip(*rows)]


def map_impl(body: Graph, xs: Sequence[Tensor], extra: Sequence[Any] = ()) -> list[Tensor]:
    """`y[i] = body(x[i])`, stacked."""
    return scan(body, (), xs, extra)


def while_loop(
    going: Callable[..., Any], body: Graph, carry: Sequence[Any], extra: Sequence[Any] = ()
) -> Sequence[Any]:
    """`while going(carry): carry = body(carry)`; of no turn, a copy."""
    first = carry
    while going(*carry, *extra):
        carry = body(*carry, *extra)
    return [c.clone() if isinstance(c, Tensor) else c for c in carry] if carry is first else carry


# by the names of the ops
FLOWS: dict[str, Callable[..., Any]] = {f.__name__: f for f in (cond, invoke_subgraph, map_impl, scan, while_loop)}
