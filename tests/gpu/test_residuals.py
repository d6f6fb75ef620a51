"""Products and convolutions on GPUs that write over the tensor they add, their blocks one after another."""

import functools

import ml_dtypes
import numpy as np
import pytest
import torch
from support import fake_cuda
from support.fake_program import run_on_fake

from lamina.compiler.api import compile_graph, show_ir
from lamina.dialects import interpret
from lamina.dialects.dims import symbol
from lamina.dialects.record import Graph, Symbol, TensorType

DTYPES = {"f32": np.float32, "bf16": ml_dtypes.bfloat16}


@pytest.fixture
def in_turn(monkeypatch):
    """Blocks that start when the one before has ended."""
    monkeypatch.setattr(fake_cuda, "run_stage", functools.partial(fake_cuda.run_stage, in_turn=True))
    return monkeypatch


def layers(rows, width, inner, dtype, symbols=()):
    """Two residual layers after a value of our own: `x + relu(x w) v`."""
    graph = Graph(symbols=list(symbols))
    x = graph.add("exp", graph.add_input("x", TensorType(dtype, (rows, width))))
    for i in range(2):
        w = graph.add_input(f"w{i}", TensorType(dtype, (inner, width)))
        v = graph.add_input(f"v{i}", TensorType(dtype, (width, inner)))
        made = graph.add("linear", graph.add("relu", graph.add("linear", x, w, None)), v, None)
        x = graph.add("add", x, made)
    graph.add_output(x)
    return graph


def exact_layers(x, *weights):
    x = torch.exp(x)
    for w, v in zip(weights[::2], weights[1::2]):
        x = x + torch.relu(x @ w.T) @ v.T
    return x


def operands(dtype, *shapes):
    rng = np.random.default_rng(5)
    return [(rng.standard_normal(s) / s[-1] ** 0.5).astype(DTYPES[dtype]) for s in shapes]


def check(made, arrays, exact, dtype):
    right = exact(*(torch.from_numpy(a.astype(np.float64)) for a in arrays)).numpy()
    tolerance = 1e-6 if dtype == "f32" else 1e-2
    np.testing.assert_allclose(made.astype(np.float64), right, rtol=0, atol=tolerance * np.abs(right).max())


# few rows; tiles; rows that are no vectors; K in parts
SIZES = [(5, 64, 32), (150, 96, 40), (70, 50, 33), (64, 64, 1024)]


@pytest.mark.parametrize("target, dtype", [("sm_90a", "f32"), ("sm_80", "bf16"), ("sm_80", "f32")])
@pytest.mark.parametrize("rows, width, inner", SIZES, ids=str)
def test_layers_have_one_buffer(rows, width, inner, target, dtype, in_turn):
    graph = layers(rows, width, inner, dtype)
    assert show_ir(graph, "kernels", target).count("inplace") == 2
    arrays = operands(dtype, (rows, width), *[(inner, width), (width, inner)] * 2)
    (made,) = run_on_fake(graph, arrays, in_turn, target)
    check(made, arrays, exact_layers, dtype)


def test_layers_of_symbolic_sizes_have_one_buffer(in_turn):
    graph = layers(symbol("n"), 64, 32, "f32", [Symbol("n", input=0, dim=0)])
    assert show_ir(graph, "kernels", "sm_90a").count("inplace") == 2
    arrays = operands("f32", (37, 64), *[(32, 64), (64, 32)] * 2)
    (made,) = run_on_fake(graph, arrays, in_turn, sizes=[37])
    check(made, arrays, exact_layers, "f32")
    assert len(compile_graph(graph, "sm_90a").manifest["plan"]["arena"]) == 2  # of w's results; x is the output


@pytest.mark.parametrize("target, dtype, groups", [("sm_80", "f32", 1), ("sm_90a", "bf16", 24)])
def test_a_convolution_writes_over_what_it_adds(target, dtype, groups, in_turn):
    shape, weight = (2, 24, 9, 11), (24, 24 // groups, 3, 3)
    graph = Graph()
    x = graph.add("exp", graph.add_input("x", TensorType(dtype, shape)))
    w = graph.add_input("w", TensorType(dtype, weight))
    fields = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": groups}
    fields |= {"transposed": False, "output_padding": (0, 0)}
    first = graph.add("relu", graph.add("conv", x, w, None, **fields))
    graph.add_output(graph.add("add", graph.add("conv", first, w, None, **fields), x))
    assert show_ir(graph, "kernels", target).count("inplace") == 1
    arrays = operands(dtype, shape, weight)

    def exact(x, w):
        x, conv = torch.exp(x), functools.partial(torch.conv2d, weight=w, padding=1, groups=groups)
        return conv(torch.relu(conv(x))) + x

    (made,) = run_on_fake(graph, arrays, in_turn, target)
    check(made, arrays, exact, dtype)


def test_what_is_multiplied_too_is_kept(in_turn):
    """Attention has results of another shape: the product read a reshape of what it was written over."""
    graph, shape = Graph(), (9, 64)
    x, z, w = (graph.add_input(n, TensorType("bf16", s)) for n, s in zip("xzw", (shape, shape, (64, 64))))
    scores = graph.add("matmul", x, graph.add("permute", x, dims=(1, 0)))
    attended = graph.add("matmul", graph.add("softmax", scores, dim=1), x)
    y = graph.add("add", attended, graph.add("softmax", z, dim=1))
    graph.add_output(graph.add("tanh", graph.add("add", y, graph.add("linear", y, w, None))))
    arrays = operands("bf16", shape, shape, (64, 64))
    (made,) = run_on_fake(graph, arrays, in_turn, "sm_80")
    right = np.asarray(interpret.run(graph, arrays)[0]).astype(np.float64)
    np.testing.assert_allclose(made.astype(np.float64), right, rtol=0, atol=2e-2)


def test_a_kernel_that_may_write_over_an_operand_does_not_promise_that_both_lie_apart():
    text = show_ir(layers(64, 64, 64, "f32"), "loops", "sm_90a")
    stages = [line for line in text.splitlines() if "gpu.func" in line]
    assert sorted(s.count("global>> {llvm.align = 16 : i64}") for s in stages) == [0, 0, 2]


@pytest.mark.parametrize("rows, places", [(1152, 2), (1100, 0)])
def test_many_rows_that_are_no_whole_tiles_have_a_buffer_of_their_own(rows, places):
    assert show_ir(layers(rows, 64, 32, "bf16"), "kernels", "sm_90a").count("inplace") == places
