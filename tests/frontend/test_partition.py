"""The schedule keeps every dependence and order that matters, and makes few parts."""

import operator

import pytest
import torch
from torch import fx

from lamina.frontend.early_release import LARGE
from lamina.frontend.partition import schedule

aten = torch.ops.aten


def graph_of(build) -> fx.GraphModule:
    graph = fx.Graph()
    graph.output(tuple(build(graph)))
    return fx.GraphModule(torch.nn.Module(), graph)


def call(graph, op, *args):
    node = graph.call_function(op, args)
    node.meta["val"] = torch.zeros(2)
    return node


def orders(gm, eager):
    steps = schedule(gm, eager)
    order = [n for s in steps for n in s.nodes]
    place = {n: i for i, n in enumerate(order)}
    for node in order:
        assert all(place[a] < place[node] for a in node.all_input_nodes if a in place)
    return steps, place


def test_independent_eager_ops_do_not_split():
    def build(g):
        x = g.placeholder("x")
        results = []
        for _ in range(4):
            y = call(g, aten.relu.default, x)
            results.append(call(g, aten.sin.default, call(g, aten.inverse.default, y)))
        return results

    gm = graph_of(build)
    eager = {n for n in gm.graph.nodes if n.target is aten.inverse.default}
    steps, _ = orders(gm, eager)
    assert [s.compiled for s in steps] == [True, False, True]


def test_what_is_computed_again_waits_for_its_reader():
    """Of the saved value of each layer, in the step that needs it, not of all layers in the first."""

    def build(g):
        saved, grad = [g.placeholder(f"s{i}") for i in range(3)], g.placeholder("grad")
        for s in saved:
            again = call(g, aten.tanh.default, call(g, aten.sin.default, s))
            grad = call(g, aten.inverse.default, call(g, aten.mul.Tensor, grad, again))
        return [grad]

    gm = graph_of(build)
    eager = {n for n in gm.graph.nodes if n.target is aten.inverse.default}
    steps, _ = orders(gm, eager)
    assert [s.compiled for s in steps] == [True, False] * 3
    assert [len(s.nodes) for s in steps] == [3, 1] * 3


def test_an_input_that_is_written_is_read_before():
    def build(g):
        x, grad = g.placeholder("x"), g.placeholder("grad")
        old = call(g, aten.sin.default, x)
        new = call(g, aten.inverse.default, grad)
        used = call(g, aten.mul.Tensor, new, old)
        call(g, aten.copy_.default, x, new)
        return [used]

    gm = graph_of(build)
    eager = {n for n in gm.graph.nodes if n.target is aten.inverse.default}
    _, place = orders(gm, eager)
    named = {n.target: i for n, i in place.items()}
    assert named[aten.sin.default] < named[aten.copy_.default]


def test_random_numbers_keep_their_order():
    def build(g):
        x = g.placeholder("x")
        a = call(g, aten.rand_like.default, call(g, aten.relu.default, x))
        b = call(g, aten.rand_like.default, x)
        return [b, a]

    gm = graph_of(build)
    first, second = [n for n in gm.graph.nodes if n.target is aten.rand_like.default]
    _, place = orders(gm, {first, second})
    assert place[first] < place[second]


def test_mutation_waits_for_earlier_readers():
    def build(g):
        x = g.placeholder("x")
        late = call(g, aten.inverse.default, call(g, aten.sin.default, x))
        reader = call(g, aten.cos.default, x)
        call(g, aten.copy_.default, x, late)
        return [reader, call(g, aten.relu.default, x)]

    gm = graph_of(build)
    nodes = {n.target: n for n in gm.graph.nodes}
    _, place = orders(gm, {nodes[aten.inverse.default]})
    assert place[nodes[aten.cos.default]] < place[nodes[aten.copy_.default]] < place[nodes[aten.relu.default]]


def test_getitem_stays_with_its_tuple():
    def build(g):
        x = g.placeholder("x")
        pair = call(g, aten.sort.default, x)
        y = call(g, aten.inverse.default, call(g, operator.getitem, pair, 0))
        return [call(g, aten.add.Tensor, call(g, operator.getitem, pair, 1), y)]

    gm = graph_of(build)
    steps, _ = orders(gm, {n for n in gm.graph.nodes if n.target is aten.inverse.default})
    assert [len(s.nodes) for s in steps] == [3, 1, 1]


def test_linear_in_the_number_of_nodes():
    def build(g):
        x = g.placeholder("x")
        for i in range(1500):
            x = call(g, aten.relu.default if i % 3 else aten.inverse.default, x)
        return [x]

    gm = graph_of(build)
    steps, _ = orders(gm, {n for n in gm.graph.nodes if n.target is aten.inverse.default})
    assert len(steps) == 1000


@pytest.mark.parametrize("name, late, parts", [("logits", False, 2), ("logits", True, 1), ("primals_1", False, 1)])
def test_a_large_saved_tensor_ends_with_the_part_that_needs_it(name, late, parts):
    """Before the products of what is made of it; not where it is needed after one, and no argument of the forward pass."""

    def build(g):
        saved, grad, weight = g.placeholder(name), g.placeholder("tangents_1"), g.placeholder("w")
        saved.meta["val"] = torch.empty(LARGE // 4, device="meta")
        first = call(g, aten.mul.Tensor, call(g, aten.exp.default, saved), grad)
        product = call(g, aten.mm.default, call(g, aten.neg.default, first), weight)
        return [call(g, aten.mul.Tensor, product, saved if late else weight)]

    steps, _ = orders(graph_of(build), set())
    assert [len(s.nodes) for s in steps] == ([3, 2] if parts == 2 else [5])
