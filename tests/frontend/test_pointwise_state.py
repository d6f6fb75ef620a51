"""State that a pointwise kernel makes from its own old value: written in place, by optimised and plain kernels."""

import pytest
import torch

from lamina.compiler.api import compile_graph
from lamina.dialects.record import Graph, TensorType

from .conftest import check


def momentum(m, x, g, rate):
    m.mul_(0.9).add_(g)
    x.sub_(m * rate)


def old_value_too(x, y):
    z = x * 2
    x.add_(1)
    y.copy_(torch.exp(x) * y)
    return z


def twice(x):
    x.add_(1)
    x.mul_(x)


def transposed(x, y):
    x.add_(y.t())
    y.mul_(x.t())


def of_two_types(x, y):
    x.add_(y)
    y.mul_(x)


def update_of_the_old_value(x, y):
    """`z` is `x` with something added: not over `x`, which gets another value."""
    z = x.index_add(0, torch.tensor([3, 3]), y[:2])
    x.mul_(2)
    return z


X, Y = torch.randn(70, 33), torch.randn(70, 33)
CASES = {
    "momentum": (momentum, X, Y, Y * 2, torch.tensor(0.1)),
    "old value too": (old_value_too, X, Y),
    "many chunks": (twice, torch.randn(300_001)),
    "transposed": (transposed, torch.randn(40, 40), torch.randn(40, 40)),
    "update of the old value": (update_of_the_old_value, X, Y),
    "two types": (of_two_types, X.bfloat16(), Y),
}


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_values(name, plain):
    check(*CASES[name], options={"plain": plain})


def test_nothing_is_copied():
    graph = Graph()
    type = TensorType("f32", (70, 33))
    x, y = graph.add_input("x", type), graph.add_input("y", type)
    graph.add_output(graph.add("add", x, y), "new_x", mutates="x")
    plan = compile_graph(graph).manifest["plan"]
    assert [launch["args"] for launch in plan["launches"]] == [[["input", 0], ["input", 1], ["input", 0]]]
    assert not plan["before"] and not plan["after"] and not plan["arena"]
