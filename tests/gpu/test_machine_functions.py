"""Kernels with the machine's own quotient and power, as targets ask for them: the other tests simulate without."""

import pytest
from support.graph_kernel import graph_of
from support.simulated import check, random

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
