"""Control flow that eager does between compiled graphs: conditions, loops of unknown or great length.

`cond(p, then, otherwise, xs)` becomes `meanings.cond(p, then', otherwise', xs)`, where `then'` is the compiled branch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import fx

from .expand import bodies, higher_order
from .meanings import FLOWS


def control_flow(node: fx.Node) -> Callable[..., Any] | None:
    """The function that does what a node of control flow says, of callables in place of its graphs; None for other nodes."""
    return FLOWS.get(higher_order(node))


def compiled_bodies(
    gm: fx.GraphModule, compile: Callable[[fx.GraphModule], Callable[..., Any]]
) -> dict[fx.Node, Callable[..., Any]]:
    """The graphs of a graph's control flow, compiled, by the `get_attr` nodes that hold them."""
    found: dict[fx.Node, Callable[..., Any]] = {}
    for node in filter(control_flow, gm.graph.nodes):
        for holder, body in bodies(gm, node):
            if holder not in found:
                found[holder] = _of_any_result(body, compile)
    return found


def _of_any_result(body: fx.GraphModule, compile: Callable[[fx.GraphModule], Callable[..., Any]]) -> Callable[..., Any]:
    """`body`, whose result may be one value, compiled as a graph whose result is a tuple."""
    graph = fx.Graph()
    result: Any = graph.graph_copy(body.graph, {})
    single = isinstance(result, fx.Node)
    graph.output((result,) if single else tuple(result))
    call = compile(fx.GraphModule(body, graph))
    return (lambda *args: call(*args)[0]) if single else call
