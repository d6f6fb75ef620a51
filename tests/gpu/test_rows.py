"""GPU kernels of rows, simulated on the CPU and compared with numpy.

Rows in registers with a masked tail, rows of a warp, long rows in a loop, rows that begin anywhere, rows of symbolic length.
"""

import re
import warnings

import numpy as np
import pytest
from support.graph_kernel import graph_of
from support.random_graph import random_graph
from support.simulated import ALIGNED, check, random

from lamina.dialects.dims import symbol
from lamina.dialects.record import Graph, Symbol, TensorType

ROWS = [(8, 4096), (3, 4097), (5, 1000), (4, 1500), (70, 100), (6, 16384), (2, 40000), (300, 7), (2, 3, 5, 256)]


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("shape", ROWS, ids=str)
def test_softmax(shape, dtype):
    check(graph_of("softmax", (dtype, shape), dim=len(shape) - 1), random((dtype, shape)))


@pytest.mark.parametrize("shape", [(8, 4096), (5, 1000), (3, 777), (2, 40000)], ids=str)
def test_layer_norm_and_its_statistics(shape):
    types = ("bf16", shape), ("bf16", shape[-1:]), ("bf16", shape[-1:])
    check(graph_of("layer_norm", *types, dims=1, eps=1e-5), random(*types))


def test_what_stores_need_is_loaded_before_the_first_barrier():
    types = ("f32", (8, 4096)), ("f32", (4096,)), ("f32", (4096,))
    text = check(graph_of("layer_norm", *types, dims=1, eps=1e-5), random(*types))
    assert text.rindex("vector.load") < text.index("gpu.barrier")


EXP2 = "{exp2=llvm.nvvm.ex2.approx.ftz.f}"


def test_exponentials_of_16_bits_and_those_that_are_only_summed_are_rough():
    softmax = {t: graph_of("softmax", (t, (5, 300)), dim=1) for t in ("f32", "bf16")}
    texts = {t: check(g, random((t, (5, 300))), options=EXP2) for t, g in softmax.items()}
    assert "math.exp" in texts["f32"] and "math.exp" not in texts["bf16"]

    def summed(largest: str, uses: int) -> str:
        """`sum(exp(x - largest(x)))`, with so many uses of the exponentials."""
        g = Graph()
        x = g.add_input("x", TensorType("f32", (5, 300)))
        e = g.add("exp", g.add("sub", x, g.add(largest, x, dims=(1,), keepdim=True)))
        g.add_output(g.add("sum", e, dims=(1,), keepdim=False))
        if uses > 1:
            g.add_output(e)
        return check(g, random(("f32", (5, 300))), 1e-6 if uses == 1 else 2e-5, options=EXP2)

    assert "math.exp" not in summed("amax", 1)
    assert "math.exp" in summed("amin", 1) and "math.exp" in summed("amax", 2)


def test_softmax_over_a_middle_dimension():
    check(graph_of("softmax", ("f32", (3, 200, 40)), dim=1), random(("f32", (3, 200, 40))))


def row_graph(dtype, shape):
    """A norm with a weight, and the sum of its rows: vectors of what begins anywhere, and of what does not."""
    g = Graph()
    over = tuple(range(1, len(shape)))
    x, w = g.add_input("x", TensorType(dtype, shape)), g.add_input("w", TensorType(dtype, shape[1:]))
    g.add_output(g.add("layer_norm", x, w, None, dims=len(over), eps=1e-5)[0])
    g.add_output(g.add("sum", x, dims=over, keepdim=False))
    return g, random((dtype, shape), (dtype, shape[1:]))


# every place in a vector to begin at; a part of a warp, a warp, a block; a last vector for some rows only; two dimensions
ANYWHERE = [(9, 257), (5, 301), (3, 1022), (3, 1031), (9, 2051), (3, 7, 43)]


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("shape", ANYWHERE, ids=str)
def test_reduced_rows_that_begin_anywhere_are_vectors(shape, dtype):
    graph, arrays = row_graph(dtype, shape)
    text = check(graph, arrays, 2e-4, ALIGNED)
    lanes = {"f32": 4, "bf16": 8}[dtype]
    if (dtype, shape[-1]) == ("f32", 1022):
        lanes = 2  # whole ones: shifting weights would cost what four lanes gain
    assert f"vector<{lanes}x{dtype}>" in next(line for line in text.splitlines() if "vector.store" in line)
    assert "fshr" in text if dtype == "bf16" else "arith.select" in text  # weights are shifted to where the row begins


@pytest.mark.parametrize("columns", [777, 4097])
def test_two_weights_of_f32_are_shifted_in_arms(columns):
    """A branch for each place of an aligned vector, in which no words are chosen at run time."""
    types = ("f32", (270, columns)), ("f32", (columns,)), ("f32", (columns,))
    text = check(graph_of("layer_norm", *types, dims=1, eps=1e-5), random(*types), options=ALIGNED)
    assert text.count("vector.store") >= 4 and "vector<4xf32>" in text
    assert "arith.select" not in text[text.index("scf.if") :] or columns < 4097


@pytest.mark.parametrize("op", ["argmax", "sum"])
@pytest.mark.parametrize("dtype", ["i8", "i64"])
def test_integers_in_rows_that_begin_anywhere(op, dtype):
    x = np.random.default_rng(1).integers(-100, 100, (9, 333)).astype({"i8": np.int8, "i64": np.int64}[dtype])
    check(graph_of(op, (dtype, x.shape), dims=(1,), keepdim=False), [x])


@pytest.mark.parametrize("columns", [257, 301, 777, 1031, 4097])
def test_rows_that_begin_anywhere_have_an_arm_for_each_place_of_what_lies_otherwise(columns):
    types = ("bf16", (270, columns)), ("bf16", (columns,)), ("bf16", (columns,))
    text = check(graph_of("layer_norm", *types, dims=1, eps=1e-5), random(*types), options=ALIGNED)
    constant = re.findall(r"llvm.intr.fshr\(%\w+, %\w+, %(\w+)\)", text)
    assert constant and all(c.startswith("c") for c in constant) == (
        columns >= 777
    )  # what is loaded ahead is shifted once


def test_any_number_of_rows_that_begin_anywhere():
    g = Graph(symbols=[Symbol("s0", input=0, dim=0)])
    g.add_output(g.add("softmax", g.add_input("x", TensorType("bf16", (symbol("s0"), 515))), dim=1))
    for rows in (1, 6):
        assert "vector<8xbf16>" in check(g, random(("bf16", (rows, 515))))


def test_symbolic_rows_and_columns():
    g = Graph(symbols=[Symbol("s0", input=0, dim=0), Symbol("s1", input=0, dim=1)])
    x = g.add_input("x", TensorType("f32", (symbol("s0"), symbol("s1"))))
    y = g.add("softmax", x, dim=1)
    g.add_output(y)
    g.add_output(g.add("sum", y, dims=(0,), keepdim=False))
    g.add_output(g.add("add", x, y))
    for shape in (
        (7, 1500),
        (130, 33),
        (3, 512),
        (3, 513),
        (2, 4096),
        (2, 4097),
        (1, 8192),
        (1, 8200),
        (1, 16392),
    ):  # held up to 4096 by a block, up to 8192 and 16384 by larger ones
        check(g, random(("f32", shape)), 2e-4)


# shorter than what is worth it, just so long, as many vectors as a block holds, and as a larger one holds, more, none
LENGTHS = [(5, 255), (5, 259), (2, 4103), (2, 4105), (1, 8209), (3, 1001), (3, 0)]


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("shape", LENGTHS, ids=str)
def test_symbolic_rows_that_begin_anywhere(shape, dtype):
    g = Graph(symbols=[Symbol("s0", input=0, dim=0), Symbol("s1", input=0, dim=1)])
    rows, columns = symbol("s0"), symbol("s1")
    x = g.add_input("x", TensorType(dtype, (rows, columns)))
    w = g.add_input("w", TensorType(dtype, (columns,)))
    g.add_output(g.add("softmax", x, dim=1) if shape[1] % 2 else g.add("sum", x, dims=(1,), keepdim=False))
    g.add_output(g.add("rms_norm", x, w, dims=1, eps=1e-5))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the interpreter's mean of nothing
        text = check(g, random((dtype, shape), (dtype, shape[1:])), 2e-4, ALIGNED)
    assert ("llvm.intr.fshr" in text) == (dtype == "bf16")  # f32 moves by whole words


def test_a_sum_over_a_row_needs_sums_over_the_same_row():
    """Loops over a row, written ahead of a loop over it: each has its own position in the row."""
    g = Graph(symbols=[Symbol("s0", input=0, dim=0), Symbol("s1", input=0, dim=1)])
    x = g.add_input("x", TensorType("f32", (symbol("s0"), symbol("s1"))))
    g.add_output(g.add("sum", g.add("mul", g.add("softmax", x, dim=1), x), dims=(1,), keepdim=True, dtype="f32"))
    for size in ((3, 5), (2, 5000), (2, 33000)):
        check(g, random(("f32", size)))


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_random_graphs(seed, dynamic):
    graph, arrays = random_graph(seed, dynamic)
    check(graph, arrays, 1e-3)
