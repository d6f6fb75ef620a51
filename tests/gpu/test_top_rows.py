"""`topk` of short rows on GPUs: of every type, with ties, NaN and both zeros, rows that are no whole waves."""

import numpy as np
import pytest
import torch
from support.fake_program import run_on_fake
from support.samples import from_torch, type_of

from lamina.compiler.api import show_ir
from lamina.dialects.record import Graph, TensorType
from lamina.frontend.devices import check_kernels


def graph_of(type, **attributes):
    graph = Graph()
    for value in graph.add("topk", graph.add_input("x", type), **attributes):
        graph.add_output(value)
    return graph


def check(x, k, largest, monkeypatch):
    """The first of equal elements, as torch on a CPU has them in a stable sort."""
    graph = graph_of(type_of(from_torch(x)), k=k, dim=-1, largest=largest)
    assert "gpu.shuffle" in show_ir(graph, "loops", "sm_90a")
    values, indices = run_on_fake(graph, [from_torch(x)], monkeypatch)
    order = x.sort(dim=-1, descending=largest, stable=True)
    np.testing.assert_array_equal(indices, order.indices[..., :k].numpy())
    np.testing.assert_array_equal(values.astype(np.float64), order.values[..., :k].double().numpy())


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("shape, k", [((9, 64), 8), ((3, 5, 33), 4), ((1, 7), 7), ((2, 1000), 32), ((17, 32), 1)])
def test_numbers(shape, k, largest, monkeypatch):
    check(torch.randn(shape, generator=torch.Generator().manual_seed(0)), k, largest, monkeypatch)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int32, torch.int8, torch.uint8])
def test_ties_and_ends(dtype, monkeypatch):
    some = [1.0, 2, 3, 0, -0.0, 100] + [float("nan"), float("inf"), -float("inf"), -3] * dtype.is_floating_point
    at = np.random.default_rng(0).integers(0, len(some), (6, 50))
    x = torch.tensor(some).to(dtype)[torch.from_numpy(at)]
    for largest in (True, False):
        check(x, 20, largest, monkeypatch)


def test_other_rows_have_no_waves():
    for type, k, dim in ((("f32", (4, 2000)), 3, 1), (("f64", (4, 64)), 3, 1), (("f32", (64, 4)), 3, 0), (("f32", (4, 64)), 40, 1)):  # fmt: skip
        graph = graph_of(TensorType(*type), k=k, dim=dim)
        assert "gpu.shuffle" not in show_ir(graph, "loops", "sm_90a")


def test_the_routing_of_experts(monkeypatch):
    """The largest weights of each token, their sum 1, and where they belong: nothing is torch's."""
    graph = Graph()
    weights = graph.add("softmax", graph.add_input("x", TensorType("f32", (37, 64))), dim=1)
    values, indices = graph.add("topk", weights, k=8, dim=1)
    values = graph.add("div", values, graph.add("sum", values, dims=(1,), keepdim=True))
    zeros = graph.add("full", shape=(37, 64), value=0.0, dtype="f32")
    graph.add_output(graph.add("scatter", zeros, indices, values, dim=1))
    check_kernels(graph.nodes, graph.types, torch.device("cuda", 0))
    x = torch.randn((37, 64), generator=torch.Generator().manual_seed(0))
    (made,) = run_on_fake(graph, [x.numpy()], monkeypatch)
    best, at = x.softmax(1).topk(8, 1)
    expected = torch.zeros(37, 64).scatter(1, at, best / best.sum(1, keepdim=True))
    np.testing.assert_allclose(made, expected.numpy(), rtol=1e-5)
