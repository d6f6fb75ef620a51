"""Kernels with the machine's own quotient and power, as targets ask for them: the other tests simulate without."""

import ml_dtypes
import numpy as np
import pytest
from support.graph_kernel import graph_of
from support.simulated import check, random, run_simulated

from lamina.dialects.record import Graph, TensorType

OPTIONS = "{divide=llvm.nvvm.div.full exp2=llvm.nvvm.ex2.approx.ftz.f}"


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("op", ["sigmoid", "silu"])
def test_functions_of_elements_divide(op, dtype):
    assert "llvm.nvvm.div.full" in check(graph_of(op, (dtype, (6, 130))), random((dtype, (6, 130))), options=OPTIONS)


def test_only_exponentials_that_a_sum_sees_are_rough():
    """Elements of a softmax in f32 are results; the terms of a log-softmax's sum are not."""
    shape = (5, 300)
    softmax = check(graph_of("softmax", ("f32", shape), dim=1), random(("f32", shape)), options=OPTIONS)
    logarithms = check(graph_of("log_softmax", ("f32", shape), dim=1), random(("f32", shape)), options=OPTIONS)
    assert "ex2.approx" not in softmax and "ex2.approx" in logarithms


def test_pairs_of_bf16_are_widened_bit_for_bit():
    """All of them: numbers, subnormal ones, infinities, and what is not a number with its bits."""
    every = np.tile(np.arange(1 << 16, dtype=np.uint16), 16).view(ml_dtypes.bfloat16)
    graph = graph_of("cast", ("bf16", every.shape), dtype="f32")
    made, _, text = run_simulated(graph, [every], OPTIONS)
    np.testing.assert_array_equal(made[0].view(np.uint32), every.view(np.uint16).astype(np.uint32) << 16)
    assert "arith.extf" not in text


def test_a_product_is_added_in_one_rounding_but_not_to_another_product():
    """Where results have 16 bits: `a * b - a * b` stays 0."""
    graph = Graph()
    a, b = (graph.add("cast", graph.add_input(n, TensorType("bf16", (64,))), dtype="f32") for n in "ab")
    scaled = graph.add("add", graph.add("mul", a, b), a)
    negative = graph.add("mul", graph.add("neg", a), b)
    nothing = graph.add("add", graph.add("mul", a, b), negative)
    graph.add_output(graph.add("cast", scaled, dtype="bf16"))
    graph.add_output(graph.add("cast", nothing, dtype="bf16"))
    given = random(("bf16", (64,)), ("bf16", (64,)))
    text = check(graph, given, options=OPTIONS)
    made, _, _ = run_simulated(graph, given, OPTIONS)
    assert text.count("math.fma") == 1 and not made[1].astype(np.float32).any()
