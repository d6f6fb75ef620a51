"""The maximum of a row and the sum of exponentials below it in one pass, simulated on the CPU and compared with float64."""

import re

import numpy as np
import pytest
from mlir import ir
from support.graph_kernel import graph_module
from support.simulate_gpu import simulate
from support.simulated import TYPES, run_simulated

from lamina.dialects.dims import symbol
from lamina.dialects.record import Graph, Symbol, TensorType
from lamina.passes.pass_manager import run

OPTIONS = "{exp2=llvm.nvvm.ex2.approx.ftz.f aligned=true}"
# of a machine that has all of these instructions
ALL = "{divide=llvm.nvvm.div.full exp2=llvm.nvvm.ex2.approx.ftz.f largest=llvm.nvvm.redux.sync.max aligned=true}"
# rows of a part of a warp, a warp, a block, one with its edges elsewhere, and of more waves than each thread reads
SHAPES = [(70, 40), (9, 1000), (5, 4096), (5, 4097), (66, 16384)]


def log_sum(dtype, shape, stored=False, symbols=()):
    """`max(x)` and `log(sum(exp(x - max(x))))` of rows in f32; `stored`: the exponentials, too."""
    g = Graph()
    g.symbols += symbols
    x = g.add("cast", g.add_input("x", TensorType(dtype, shape)), dtype="f32")
    most = g.add("amax", x, dims=(1,), keepdim=True)
    e = g.add("exp", g.add("sub", x, most))
    g.add_output(most)
    g.add_output(g.add("log", g.add("sum", e, dims=(1,), keepdim=True, dtype="f32")))
    if stored:
        g.add_output(e)
    return g


def checked(x, dtype="f32", ulp=8, options=OPTIONS):
    """The IR, after the values of `x` have been compared with float64: maxima exactly, logarithms to some `ulp` of 1."""
    (most, made), _, text = run_simulated(log_sum(dtype, x.shape), [x], options)
    wide = x.astype(np.float64)
    with np.errstate(invalid="ignore"):
        expected = np.log(np.exp(wide - wide.max(1, keepdims=True)).sum(1, keepdims=True))
    np.testing.assert_array_equal(most, wide.max(1, keepdims=True).astype(np.float32))
    np.testing.assert_allclose(made, expected, rtol=ulp * 2.0**-24, atol=ulp * 2.0**-24)
    return text


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_row_takes_one_pass(shape, dtype):
    x = (5 * np.random.default_rng(1).standard_normal(shape)).astype(TYPES[dtype])
    text = checked(x, dtype)
    assert text.count("gpu.barrier") == (shape[1] > 40)


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_16_bits_are_compared_before_they_are_f32(shape, dtype):
    x = (5 * np.random.default_rng(1).standard_normal(shape)).astype(TYPES[dtype])
    text = checked(x, dtype, options=ALL)
    assert re.search(rf"arith.maximumf .* : vector<2x{dtype}>", text)
    assert ("redux" in text) == (shape[1] > 40)


@pytest.mark.parametrize("columns", [96, 1024, 3000, 4096, 4097, 9000])
def test_lengths_may_be_symbols(columns):
    x = np.random.default_rng(6).standard_normal((3, columns)).astype(np.float32)
    g = log_sum("f32", (symbol("m"), symbol("n")), symbols=[Symbol("m", input=0, dim=0), Symbol("n", input=0, dim=1)])
    made, expected, text = run_simulated(g, [x], OPTIONS)
    for m, e in zip(made, expected):
        np.testing.assert_allclose(m, e, rtol=1e-6, atol=1e-6)
    assert "math.fma" in text


@pytest.mark.parametrize("columns", [40, 4096, 4097])
def test_offsets_of_all_elements_cost_no_accuracy(columns):
    x = np.random.default_rng(2).standard_normal((7, columns)).astype(np.float32)
    x += np.array([[1e3], [-1e3], [3e4], [-1e5], [77.7], [0.0], [1.6e7]], np.float32)
    checked(x)


def extremes(columns):
    """All -inf, +inf, NaN, and finite elements that are no f32 any more times log2(e)."""
    x = np.random.default_rng(3).standard_normal((9, columns)).astype(np.float32)
    x[0] = -np.inf
    x[1, 5] = np.inf
    x[2, 7] = np.nan
    x[3, 1:] = -np.inf
    x[4] = -np.inf
    x[4, -1] = 3.4e38
    x[5, 3::7] = 3e38
    x[6] = -3.4e38
    x[7, ::2] = -np.inf
    x[8, ::3] = 2.0**30
    x[8, 1::3] = 2.0**30 - 64
    return x


@pytest.mark.parametrize("options", [OPTIONS, ALL], ids=["shuffles", "instructions"])
@pytest.mark.parametrize("columns", [40, 4096, 4097])
def test_extremes_are_as_in_two_passes(columns, options):
    checked(extremes(columns), options=options)


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
@pytest.mark.parametrize("columns", [40, 4096, 4097])
def test_extremes_of_16_bits_are_as_in_two_passes(columns, dtype):
    with np.errstate(over="ignore"):
        x = extremes(columns).astype(TYPES[dtype])
    checked(x, dtype, options=ALL)


def test_exponentials_that_are_stored_are_of_the_maximum():
    x = np.random.default_rng(4).standard_normal((5, 4096)).astype(np.float32)
    made, expected, text = run_simulated(log_sum("f32", x.shape, stored=True), [x], OPTIONS)
    for m, e in zip(made, expected):
        np.testing.assert_allclose(m, e, rtol=1e-5, atol=1e-6)
    assert "math.fma" not in text  # they need the maximum first


def test_what_a_row_needs_of_its_own_is_loaded_before_its_elements():
    g = Graph()
    x, t = g.add_input("x", TensorType("f32", (6, 4096))), g.add_input("t", TensorType("f32", (6,)))
    g.add_output(g.add("mul", g.add("sum", x, dims=(1,), keepdim=False, dtype="f32"), t))
    arrays = [np.random.default_rng(5).standard_normal(s).astype(np.float32) for s in ((6, 4096), (6,))]
    (made,), (expected,), text = run_simulated(g, arrays, OPTIONS)
    np.testing.assert_allclose(made, expected, rtol=1e-4)
    assert text.index("memref.load %arg1") < text.index("gpu.barrier")


def losses(dtype, rows, columns, used_by_all=False):
    """What a row has at its class less its maximum and the logarithm of its sum of exponentials; `used_by_all`: less itself, too."""
    g = Graph()
    x = g.add("cast", g.add_input("x", TensorType(dtype, (rows, columns))), dtype="f32")
    t = g.add_input("t", TensorType("i64", (rows,)))
    numbers = g.add("iota", dtype="i64", size=(rows,), start=0, step=1)
    chosen = g.add("index", x, numbers, t, dims=(0, 1), wrap=False, checked=True)
    if used_by_all:
        x = g.add("sub", x, g.add("reshape", chosen, shape=(rows, 1)))
    most = g.add("amax", x, dims=(1,), keepdim=True)
    total = g.add("sum", g.add("exp", g.add("sub", x, most)), dims=(1,), keepdim=True, dtype="f32")
    log = g.add("reshape", g.add("add", g.add("log", total), most), shape=(rows,))
    g.add_output(g.add("sub", chosen, log))
    return g


@pytest.mark.parametrize("used_by_all", [False, True], ids=["own", "used by all"])
@pytest.mark.parametrize("rows, columns", [(70, 40), (9, 1000), (6, 1024), (5, 4096), (5, 4097), (3, 40000)])
def test_the_class_of_a_row_is_gathered_ahead(rows, columns, used_by_all):
    """Rows that are no whole blocks, too: no check fails in threads that have none."""
    rng = np.random.default_rng(7)
    x, t = rng.standard_normal((rows, columns)).astype(TYPES["bf16"]), rng.integers(0, columns, rows)
    (made,), _, text = run_simulated(losses("bf16", rows, columns, used_by_all), [x, t], ALL)
    wide = x.astype(np.float64)
    chosen = wide[np.arange(rows), t]
    if used_by_all:
        wide -= chosen[:, None]
    np.testing.assert_allclose(made, chosen - np.log(np.exp(wide).sum(1)), rtol=3e-6, atol=3e-6)
    if not used_by_all and "gpu.barrier" in text and columns < 40000:
        assert text.index("memref.load %arg0") < text.index("gpu.barrier")


@pytest.mark.parametrize("wrong", [-1, 4096])
def test_a_class_out_of_bounds_is_an_error(wrong):
    x, t = np.zeros((5, 4096), TYPES["bf16"]), np.array([0, 1, wrong, 3, 4])
    context = ir.Context()
    context.enable_multithreading(False)
    with context, ir.Location.unknown():
        module = graph_module(losses("bf16", 5, 4096))
        run(module, "lamina-emit-gpu-loops" + ALL)
        _, status = simulate(module, [x, t], [((5,), np.dtype(np.float32))])
    assert status != 0
