"""Graphs with lists of tensors among their arguments, as compiled autograd's, as graphs of tensors.

f(inputs, size):  a = inputs[0]; b = inputs[1]        →        f(inputs_0, inputs_1, size)
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from torch import fx


def has_lists(inputs: Sequence[Any]) -> bool:
    """True if an argument is a list or tuple."""
    return any(isinstance(value, (list, tuple)) for value in inputs)


def take_apart(gm: fx.GraphModule, inputs: Sequence[Any]) -> tuple[fx.GraphModule, list[Any]] | None:
    """A copy of a Dynamo graph with an argument for each element of a list, and such arguments; Dynamo still reads its own.

    None if the graph does with a list what is not to read an element of it.
    """
    graph, copies = fx.Graph(), {}
    graph.output(graph.graph_copy(gm.graph, copies))
    flat: list[Any] = []
    for original, value in zip([n for n in gm.graph.nodes if n.op == "placeholder"], inputs):
        node = copies[original]
        if not isinstance(value, (list, tuple)):
            flat.append(value)
            continue
        if any(u.target is not operator.getitem or not isinstance(u.args[1], int) for u in node.users):
            return None
        with graph.inserting_before(node):
            elements = [graph.placeholder(f"{node.name}_{i}") for i in range(len(value))]
        for user in list(node.users):
            element = elements[user.args[1]]
            element.meta.update(user.meta)
            user.replace_all_uses_with(element)
            graph.erase_node(user)
        graph.erase_node(node)
        flat += value
    made = fx.GraphModule(gm, graph)
    made.meta.update(gm.meta)
    return made, flat


def of_lists(compiled: Callable[..., Any]) -> Callable[..., Any]:
    """`compiled`, called with lists in place of their elements; they are emptied, so that elements are freed after their last use."""

    def call(*args: Any) -> Any:
        flat: list[Any] = []
        for value in args:
            flat += value if isinstance(value, (list, tuple)) else [value]
            if isinstance(value, list):
                value.clear()
        return compiled(*flat)

    return call
