"""Attention in training graphs for CUDA: what only dropout needs is gone. (Values are compared on a GPU, tests/gpu/run_compile.py.)"""

import operator

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

from lamina.frontend.attention_seeds import drop_seeds

aten = torch.ops.aten


def flash(q, k, v, g, dropout):
    out, lse, cq, ck, mq, mk, seed, offset, _ = aten._scaled_dot_product_flash_attention(q, k, v, dropout, True)
    grads = aten._scaled_dot_product_flash_attention_backward(g, q, k, v, out, lse, cq, ck, mq, mk, dropout, True, seed, offset)  # fmt: skip
    return out, *grads


def cudnn(q, k, v, g, dropout):
    out, lse, cq, ck, mq, mk, seed, offset, _ = aten._scaled_dot_product_cudnn_attention(q, k, v, None, True, dropout)
    grads = aten._scaled_dot_product_cudnn_attention_backward(g, q, k, v, out, lse, seed, offset, None, cq, ck, mq, mk, dropout, False)  # fmt: skip
    return out, *grads


def efficient(q, k, v, g, dropout):
    out, lse, seed, offset = aten._scaled_dot_product_efficient_attention(q, k, v, None, True, dropout)
    mask = [True, True, True, False]
    grads = aten._scaled_dot_product_efficient_attention_backward(g, q, k, v, None, out, lse, seed, offset, dropout, mask)  # fmt: skip
    return out, *grads[:3]


def traced(function, dropout, symbolic):
    """The graph and its arguments, tensors that are nowhere."""
    mode = FakeTensorMode(shape_env=ShapeEnv())
    with mode:
        given = [torch.empty(2, 4, n, 32, dtype=torch.bfloat16, device="cuda") for n in (64, 96, 96, 64)]
    graph = make_fx(lambda *t: function(*t, dropout), tracing_mode="symbolic" if symbolic else "fake")(*given)
    return graph, given, mode


def results_used(graph):
    return {n.args[1] for n in graph.graph.nodes if n.target is operator.getitem and "backward" not in n.args[0].name}


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("function", [flash, cudnn, efficient])
def test_only_the_output_and_the_sums_are_left(function, symbolic):
    graph, given, mode = traced(function, 0.0, symbolic)
    before = [n.meta["val"].shape for n in graph.graph.output_node().all_input_nodes]
    assert len(results_used(graph)) > 2
    drop_seeds(graph)
    graph.recompile()
    assert results_used(graph) == {0, 1}
    found = FakeTensorProp(graph, mode).propagate(*given)
    assert [t.shape for t in found] == before
    count = sum(n.target is aten.zeros.default for n in graph.graph.nodes)
    assert count == (2 if function is flash else 1), "seed and offset are one where they are alike"


@pytest.mark.parametrize("function", [flash, cudnn, efficient])
def test_dropout_keeps_its_seeds(function):
    graph, _, _ = traced(function, 0.25, False)
    before = graph.code
    drop_seeds(graph)
    graph.recompile()
    assert graph.code == before
