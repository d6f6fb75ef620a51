"""Kernels for AMD GPUs at shapes that samples are too small for, through the real runtime and the emulator.

Each case runs on one chip, by turns; all chips are for `make test-full`.
"""

import ml_dtypes
import numpy as np
import pytest
from support import amdgpu_code
from support.amdgpu_code import on_chips
from support.fake_hip import FakeHip
from support.graph_kernel import graph_of
from support.run_amdgpu import run_graph

from lamina.dialects import interpret
from lamina.dialects.dims import symbol
from lamina.dialects.record import Graph, Symbol, TensorType

pytestmark = pytest.mark.skipif(bool(amdgpu_code.MISSING), reason=f"needs {amdgpu_code.MISSING}")
NUMPY = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f64": np.float64, "i64": np.int64}
TOLERANCE = {"float32": 2e-5, "float16": 2e-3, "bfloat16": 1.6e-2, "float64": 1e-12}


@pytest.fixture
def fake(chip, monkeypatch, tmp_path):
    return FakeHip(chip).install(monkeypatch, tmp_path)


def random(graph):
    """Arrays for the inputs, in the order of declaration; indices are below 7."""
    rng = np.random.default_rng(3)
    shapes = [(graph.types[i.value].dtype, graph.types[i.value].shape) for i in graph.inputs]
    return [rng.integers(0, 7, s) if t == "i64" else rng.standard_normal(s).astype(NUMPY[t]) for t, s in shapes]


def check(graph, fake, arrays=None, scale=1.0, plain=False):
    arrays = random(graph) if arrays is None else arrays
    made = run_graph(graph, arrays, fake, plain)
    for m, e in zip(made, interpret.run(graph, arrays)):
        e = np.asarray(e)
        if e.dtype.kind in "biu":
            np.testing.assert_array_equal(m, e)
            continue
        assert m.dtype == e.dtype
        tolerance = scale * TOLERANCE[str(e.dtype)]
        np.testing.assert_allclose(m.astype(np.float64), e.astype(np.float64), rtol=tolerance, atol=tolerance)


def fused(dtype, shape):
    """`gelu(x + b) * y` with a bias of the last dimension."""
    g = Graph()
    x, y = (g.add_input(n, TensorType(dtype, shape)) for n in "xy")
    b = g.add_input("b", TensorType(dtype, shape[-1:]))
    g.add_output(g.add("mul", g.add("gelu", g.add("add", x, b)), y))
    return g


def cross_entropy(rows, classes):
    """`-log_softmax(x)[target]` and its mean."""
    g = Graph()
    x, t = g.add_input("x", TensorType("f32", (rows, classes))), g.add_input("t", TensorType("i64", (rows, 1)))
    picked = g.add("neg", g.add("gather", g.add("log_softmax", x, dim=1), t, dim=1))
    g.add_output(g.add("mean", picked, dims=(0, 1), keepdim=False))
    return g


def transposed(dtype, shape):
    g = Graph()
    x = g.add_input("x", TensorType(dtype, shape))
    swapped = (*range(len(shape) - 2), len(shape) - 1, len(shape) - 2)
    y = g.add_input("y", TensorType(dtype, tuple(shape[d] for d in swapped)))
    g.add_output(g.add("mul", g.add("permute", g.add("neg", x), dims=swapped), y))
    return g


def embedded():
    g = Graph()
    w, i = g.add_input("w", TensorType("f32", (9, 256))), g.add_input("i", TensorType("i64", (5, 7)))
    g.add_output(g.add("embedding", w, i))
    return g


LOOPS = {
    "pointwise": fused("f32", (70, 128)),
    "pointwise_f16_ragged": fused("f16", (33, 1001)),
    "pointwise_bf16": fused("bf16", (300, 256)),
    "softmax_wave": graph_of("softmax", ("f32", (7, 100)), dim=1),
    "softmax_block": graph_of("softmax", ("bf16", (3, 4096)), dim=1),
    "softmax_masked": graph_of("softmax", ("f32", (3, 4097)), dim=1),
    "softmax_middle": graph_of("softmax", ("f32", (3, 40, 20)), dim=1),
    "layer_norm": graph_of("layer_norm", ("f16", (5, 1000)), ("f16", (1000,)), ("f16", (1000,)), dims=1, eps=1e-5),
    "layer_norm_odd": graph_of("layer_norm", ("bf16", (5, 777)), ("bf16", (777,)), ("bf16", (777,)), dims=1, eps=1e-5),
    "sum_of_all": graph_of("sum", ("f32", (30000,)), dims=(0,), keepdim=False),
    "sum_of_columns": graph_of("sum", ("f32", (300, 257)), dims=(0,), keepdim=False),
    "argmax": graph_of("argmax", ("f32", (70, 500)), dims=(1,), keepdim=False),
    "variance": graph_of("var_mean", ("f32", (20, 6, 44)), dims=(0, 2), correction=1.0, keepdim=False),
    "transpose": transposed("f32", (100, 37)),
    "transpose_bf16": transposed("bf16", (2, 64, 128)),
    "concat": graph_of("concat", ("f32", (30, 64)), ("f32", (30, 96)), dim=1),
    "pad": graph_of("pad", ("f32", (20, 30)), low=(1, 2), high=(3, 4), value=0.5),
    "embedding": embedded(),
    "cross_entropy": cross_entropy(20, 333),
}


@pytest.mark.parametrize(("case", "chip"), on_chips(LOOPS))
def test_loops(case, chip, fake):
    check(LOOPS[case], fake, scale=4 if "sum" in case or "norm" in case else 1)


@pytest.mark.parametrize(("case", "chip"), on_chips([(7, 1500), (33, 130)]))
def test_symbolic_sizes(case, chip, fake):
    g = Graph(symbols=[Symbol("s0", input=0, dim=0), Symbol("s1", input=0, dim=1)])
    x = g.add_input("x", TensorType("f32", (symbol("s0"), symbol("s1"))))
    y = g.add("softmax", x, dim=1)
    g.add_output(y)
    g.add_output(g.add("sum", y, dims=(0,), keepdim=False))
    check(g, fake, [np.random.default_rng(0).standard_normal(case).astype("f")], 10)


def product(dtype, batch, m, n, k, form="linear", then=()):
    """`x @ w.T + b` or `x @ y`, and pointwise ops."""
    g = Graph()
    x = g.add_input("x", TensorType(dtype, (*batch, m, k)))
    if form == "linear":
        w, b = g.add_input("w", TensorType(dtype, (n, k))), g.add_input("b", TensorType(dtype, (n,)))
        y = g.add("linear", x, w, b)
    else:
        y = g.add("matmul", x, g.add_input("y", TensorType(dtype, (*batch, k, n))))
    if "residual" in then:
        y = g.add("add", y, g.add_input("r", TensorType(dtype, (*batch, m, n))))
    if "relu" in then:
        y = g.add("relu", y)
    g.add_output(y)
    return g


PRODUCTS = {
    f"{dtype}_{name}": product(dtype, *sizes)
    for dtype in ("f16", "bf16", "f32")
    for name, sizes in {
        "tile": ((), 64, 64, 64, "linear", ("relu", "residual")),
        "ragged": ((), 70, 72, 40),
        "odd": ((), 33, 50, 37, "matmul"),
        "columns": ((), 64, 128, 96, "matmul"),
        "few_rows": ((), 5, 96, 64),
        "batched": ((3,), 20, 24, 32, "matmul", ("residual",)),
    }.items()
}


@pytest.mark.parametrize(("case", "chip"), on_chips(PRODUCTS))
def test_products(case, chip, fake):
    check(PRODUCTS[case], fake, scale=4)
    if "few_rows" in case:  # the time is that of reading the weights
        return
    unit = (
        "fmac"
        if case.startswith("f32") and chip.startswith("gfx1")
        else "v_mfma"
        if chip.startswith("gfx9")
        else "v_wmma"
    )
    assert any(unit in name for name in fake.executed)


@pytest.mark.parametrize(("case", "chip"), on_chips([(128, 128, 64), (1, 64, 64)]))
def test_a_product_of_symbolic_rows(case, chip, fake):
    m, n, k = case
    g = Graph(symbols=[Symbol("s0", input=0, dim=0)])
    x = g.add_input("x", TensorType("f16", (symbol("s0"), k)))
    g.add_output(g.add("linear", x, g.add_input("w", TensorType("f16", (n, k))), None))
    rng = np.random.default_rng(0)
    check(g, fake, [rng.standard_normal(s).astype(np.float16) for s in ((m, k), (n, k))], 4)


LARGE = {
    "whole": product("f16", (96,), 256, 128, 64, "matmul"),
    "ragged_of_three_steps": product("bf16", (96,), 200, 100, 90, "matmul"),
    "one_step": product("f16", (), 24 * 250, 4 * 120, 24),
}


@pytest.mark.parametrize(("case", "chip"), on_chips(LARGE))
def test_large_tiles(case, chip, fake):
    """Of 256 x 128, which are taken where there are enough of them."""
    check(LARGE[case], fake, scale=4)


@pytest.mark.parametrize(("case", "chip"), on_chips([70, 128, 33]))
def test_a_product_of_symbolic_k(case, chip, fake):
    """With an odd or even number of steps, the last of them whole or not."""
    g = Graph(symbols=[Symbol("s0", input=0, dim=1)])
    x, y = (g.add_input(n, TensorType("f16", s)) for n, s in (("x", (64, symbol("s0"))), ("y", (symbol("s0"), 64))))
    g.add_output(g.add("matmul", x, y))
    rng = np.random.default_rng(0)
    check(g, fake, [rng.standard_normal(s).astype(np.float16) for s in ((64, case), (case, 64))], 4)


def convolution(dtype, channels, size=3, stride=1, dilation=1, groups=1):
    g, pair = Graph(), lambda n: (n, n)
    x, w, b = (
        g.add_input(name, TensorType(dtype, shape))
        for name, shape in (("x", (2, channels, 9, 8)), ("w", (24, channels // groups, size, size)), ("b", (24,)))
    )
    y = g.add(
        "conv", x, w, b, stride=pair(stride), padding=pair(size // 2 * dilation), dilation=pair(dilation),
        groups=groups, transposed=False, output_padding=(0, 0),
    )  # fmt: skip
    g.add_output(g.add("relu", y))
    return g


CONVOLUTIONS = {
    "few_channels": convolution("f32", 3),
    "channels_last_in_k": convolution("f16", 16, stride=2),
    "one_element": convolution("bf16", 32, size=1),
    "dilated": convolution("f32", 16, dilation=2),
    "groups": convolution("f16", 8, groups=2),
    "a_channel_each": convolution("f32", 24, groups=24),
}


@pytest.mark.parametrize(("case", "chip"), on_chips(CONVOLUTIONS))
def test_convolutions(case, chip, fake):
    check(CONVOLUTIONS[case], fake, scale=4)
    if case != "a_channel_each" and (chip.startswith("gfx9") or case not in ("few_channels", "dilated")):
        assert any("v_mfma" in name or "v_wmma" in name for name in fake.executed)


def slices():
    """Each second column and rows, chosen as they are computed, and rows that are written in place."""
    g = Graph()
    x, y, z = (g.add_input(n, TensorType("f32", s)) for n, s in (("x", (6, 64)), ("y", (6, 32)), ("z", (2, 64))))
    value = g.add("slice_scatter", x, y, starts=(0, 1), steps=(1, 2))
    for start in (3, 0):
        value = g.add("slice_scatter", value, z, starts=(start, 0), steps=(1, 1))
    g.add_output(value)
    return g


OTHERS = {
    "cumsum": graph_of("cumsum", ("f32", (20, 33)), dim=1),
    "cumsum_of_columns": graph_of("cumsum", ("f32", (2, 150, 35)), dim=1),
    "scatter": graph_of("scatter", ("f32", (9, 8)), ("i64", (1, 8)), ("f32", (1, 8)), dim=0, reduce="add"),
    "added_rows": graph_of(
        "index_put", ("f32", (7, 36)), ("f32", (70, 36)), ("i64", (70,)), dims=(0,), accumulate=True
    ),
    "added_rows_of_tiles": graph_of(
        "index_put", ("f32", (300, 4)), ("f32", (1100, 4)), ("i64", (1100,)), dims=(0,), accumulate=True
    ),
    "slices": slices(),
    "topk": graph_of("topk", ("f32", (11, 40)), k=5, dim=1),
    "topk_of_long_rows": graph_of("topk", ("f32", (2, 5000)), k=40, dim=1),
    "cumsum_in_chunks": graph_of("cumsum", ("f32", (9000,)), dim=0),
    "cumsum_of_columns_in_chunks": graph_of("cumsum", ("f32", (1100, 3)), dim=0),
    "sort": graph_of("sort", ("f32", (7, 40)), dim=1, descending=False, stable=True),
}


@pytest.mark.parametrize(("case", "chip"), on_chips(OTHERS))
def test_direct_ops(case, chip, fake):
    if case == "sort" and chip == "gfx90a":
        pytest.skip("the emulator has no scratch memory of gfx90a")
    check(OTHERS[case], fake, scale=4)


@pytest.mark.parametrize(("case", "chip"), on_chips(["f32", "bf16"]))
def test_many_updates_of_a_line(case, chip, fake):
    graph = graph_of("scatter", (case, (11, 8)), ("i64", (10, 3)), (case, (10, 3)), dim=0)
    x, _, src = random(graph)
    check(graph, fake, [x, np.repeat(np.arange(10, 0, -1)[:, None], 3, 1), src])


@pytest.mark.parametrize(("case", "chip"), on_chips(["f64"]))
def test_a_plain_product(case, chip, fake):
    check(product(case, (), 12, 10, 20), fake, plain=True)
