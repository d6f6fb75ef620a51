"""Every sample of every op, compiled: `lower` gives eager's values on the plain pipeline and on the optimised one."""

import numpy as np
import pytest
from support.run_kernel import compile_module
from support.samples import assert_close, eager, kernel_module, operands

from lamina.dialects.op import all_ops

LOOPS = ("pointwise", "view", "creation", "gather", "reduction", "row", "concat")
OPS = {n: op for n, op in all_ops().items() if op.lower is not None and op.samples}


def check(name, plain, kind=None):
    op = OPS[name]
    kernel = compile_module(kernel_module(op, op.samples, wide_sums=plain), plain=plain, kind=kind)
    made = kernel(*[np.ascontiguousarray(x) for s in op.samples for x in operands(s) if x is not None])
    actual = iter(made if isinstance(made, tuple) else (made,))
    for number, sample in enumerate(op.samples):
        for expected in eager(op, sample):
            try:
                assert_close(next(actual), expected, op.numerics)
            except AssertionError as error:
                raise AssertionError(f"sample {number}: {sample}: {error}") from None


@pytest.mark.parametrize("name", OPS)
def test_plain_equals_eager(name):
    check(name, plain=True)


@pytest.mark.parametrize("name", [n for n, op in OPS.items() if op.category in LOOPS])
def test_loops_equal_eager(name):
    check(name, plain=False)
