"""`topk` on GPUs, of short rows and of long ones: of every type, with ties, NaN and both zeros, rows that are no whole waves."""

import numpy as np
import pytest
import torch
from support.fake_program import run_on_fake
from support.samples import from_torch, type_of

from lamina.compiler.api import show_ir
from lamina.dialects.dims import symbol
from lamina.dialects.record import Graph, Symbol, TensorType
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
        check(x, 40, largest, monkeypatch)


# less than a warp's entries; a block's, of all its warps; several chunks; three stages; one element and the most there may be
@pytest.mark.parametrize("shape, k", [((3, 40), 33), ((2, 1025), 1), ((5, 3000), 50), ((1, 4097), 64), ((1, 9000), 200), ((1, 70000), 256)])  # fmt: skip
def test_long_rows(shape, k, monkeypatch):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    x[..., shape[-1] // 2 :] = x[..., : -(-shape[-1] // 2)].clone()  # each element twice
    check(x, k, k % 2 == 0, monkeypatch)
    check(x.sort(-1).values, k, True, monkeypatch)


def test_long_rows_of_an_unknown_number(monkeypatch):
    """The words that a language model may choose: what is not among the best of them is out."""
    graph = Graph(symbols=[Symbol("n", input=0, dim=0)])
    x = graph.add_input("x", TensorType("f32", (symbol("n"), 5000)))
    values, _ = graph.add("topk", x, k=50, dim=1)
    least = graph.add("slice", values, starts=(0, 49), sizes=(symbol("n"), 1), steps=(1, 1))
    out = graph.add("full", shape=(), value=-np.inf, dtype="f32")
    graph.add_output(graph.add("softmax", graph.add("where", graph.add("lt", x, least), out, x), dim=1))
    check_kernels(graph.nodes, graph.types, torch.device("cuda", 0))
    for rows in (3, 0):
        given = torch.randn(rows, 5000, generator=torch.Generator().manual_seed(0))
        (made,) = run_on_fake(graph, [given.numpy()], monkeypatch, sizes=(rows,))
        expected = given.masked_fill(given < given.topk(50).values[:, -1:], -np.inf).softmax(1)
        np.testing.assert_allclose(made, expected.numpy(), rtol=1e-5, atol=1e-7)


def test_other_rows_have_no_waves():
    for type, k, dim in ((("f64", (4, 64)), 3, 1), (("f32", (64, 4)), 3, 0), (("f32", (4, 640)), 257, 1)):
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
