"""What a graph for a GPU computes of constants on the CPU, seen in the graph: no GPU is needed."""

import pytest
import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode

from lamina.frontend.host_constants import fold_host_constants
from lamina.frontend.partition import classify

aten = torch.ops.aten


class Graph:
    """A graph being written, with fake values as AOTAutograd gives them; argument `x` is `f32[3, 4]` on the GPU."""

    def __init__(self):
        self.mode, self.graph, self.root = FakeTensorMode(), fx.Graph(), torch.nn.Module()
        self.x = self.node(self.graph.placeholder("x"), (3, 4), "cuda")

    def node(self, node, shape, device="cpu", dtype=torch.float32):
        with self.mode:
            node.meta["val"] = torch.empty(shape, device=device, dtype=dtype)
        return node

    def attribute(self, name, value):
        self.root.register_buffer(name, value)
        return self.node(self.graph.get_attr(name), value.shape)

    def call(self, target, args, shape, device="cpu", dtype=torch.float32):
        return self.node(self.graph.call_function(target, args), shape, device, dtype)

    def folded(self, *results):
        self.graph.output(results)
        gm = fx.GraphModule(self.root, self.graph)
        fold_host_constants(gm)
        gm.graph.lint()
        return gm


def test_a_scalar_of_constants_is_one_itself():
    g = Graph()
    root = g.call(aten.sqrt.default, (g.attribute("c", torch.tensor(64.0)),), ())
    y = g.call(aten.div.Tensor, (g.x, root), (3, 4), "cuda")
    gm = g.folded(y)
    assert y.args[1].op == "get_attr" and getattr(gm, y.args[1].target) == 8.0
    assert "sqrt" not in str(gm.graph) and not classify(gm)


def test_what_is_returned_is_made_anew():
    g = Graph()
    fresh = g.call(aten.lift_fresh_copy.default, (g.attribute("c", torch.tensor(64.0)),), ())
    y = g.call(aten.mul.Tensor, (g.x, fresh), (3, 4), "cuda")
    g.folded(y, fresh)
    assert y.args[1].op == "get_attr" and fresh.op == "call_function" and fresh.users


@pytest.mark.parametrize("target, args, shape", [(aten.rand.default, ([],), ()), (aten.arange.default, (4,), (4,))])
def test_random_numbers_and_rows_on_the_cpu_stay_there(target, args, shape):
    g = Graph()
    made = g.call(target, args, shape)
    y = g.call(aten.mul.Tensor, (g.x, made), (3, 4), "cuda")
    g.folded(y)
    assert y.args[1] is made


def test_errors_and_views_are_left_alone():
    g = Graph()
    c = g.attribute("c", torch.tensor(64.0))
    wrong = g.call(aten.div.Tensor_mode, (c, c), ())  # lacks its mode
    y = g.call(aten.mul.Tensor, (g.x, wrong), (3, 4), "cuda")
    seen = g.call(aten.expand.default, (c, [3]), (3,))
    g.folded(y, seen)
    assert y.args[1] is wrong and seen.args[0] is c


def test_graphs_of_the_cpu_are_left_alone():
    g = Graph()
    x = g.node(g.graph.placeholder("z"), (3, 4))
    g.graph.erase_node(g.x)
    root = g.call(aten.sqrt.default, (g.attribute("c", torch.tensor(64.0)),), ())
    y = g.call(aten.div.Tensor, (x, root), (3, 4))
    g.folded(y)
    assert y.args[1] is root
