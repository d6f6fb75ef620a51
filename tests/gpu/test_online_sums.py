"""The maximum of a row and the sum of exponentials below it in one pass, simulated on the CPU and compared with float64."""

import numpy as np
import pytest
from support.simulated import TYPES, run_simulated

from lamina.dialects.dims import symbol
from lamina.dialects.record import Graph, Symbol, TensorType

OPTIONS = "{exp2=llvm.nvvm.ex2.approx.ftz.f aligned=true}"
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


def checked(x, dtype="f32", ulp=8):
    """The IR, after the values of `x` have been compared with float64: maxima exactly, logarithms to some `ulp` of 1."""
    (most, made), _, text = run_simulated(log_sum(dtype, x.shape), [x], OPTIONS)
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


@pytest.mark.parametrize("columns", [40, 4096, 4097])
def test_extremes_are_as_in_two_passes(columns):
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
    checked(x)


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
