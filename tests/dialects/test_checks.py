"""Run-time checks: a kernel reports what eager raises, with the code of dialects/status.py, and stays in bounds."""

import numpy as np
import pytest
from support.run_kernel import KernelFailed, compile_module
from support.samples import build_kernel

from lamina.dialects import status
from lamina.dialects.op import registry
from lamina.dialects.record import TensorType


def kernel(name, types, plain, **attributes):
    op = registry(name)
    full, results = op.resolve(types, attributes)
    body = lambda b, *xs: op.lower(b, **op.bind(xs), **full)
    return compile_module(build_kernel(types, results, body), plain=plain)


def i64(*shape):
    return TensorType("i64", shape)


CASES = {
    "embedding": ([TensorType("f32", (5, 2)), i64(3)], {}, status.INDEX_OUT_OF_RANGE),
    "index": ([TensorType("f32", (5, 2)), i64(3)], {"dims": (0,)}, status.INDEX_OUT_OF_RANGE),
    "gather": ([TensorType("f32", (5,)), i64(3)], {"dim": 0}, status.GATHER_OUT_OF_RANGE),
    "remainder": ([i64(3), i64(3)], {}, status.DIVISION_BY_ZERO),
    "div": ([i64(3), i64(3)], {"rounding": "floor"}, status.DIVISION_BY_ZERO),
}
GOOD = {"remainder": [1, 2, 3], "div": [1, 2, 3]}
BAD = {
    "embedding": ([0, 5, 1], [0, -1, 1], [0, 2**62, 1]),
    "index": ([0, 5, 1], [0, -6, 1], [0, -(2**62), 1]),
    "gather": ([0, 5, 1], [0, -1, 1]),
    "remainder": ([1, 0, 2],),
    "div": ([1, 0, 2],),
}


@pytest.mark.parametrize("plain", [True, False], ids=["plain", "loops"])
@pytest.mark.parametrize("name", CASES)
def test_check(name, plain):
    types, attributes, expected = CASES[name]
    k = kernel(name, types, plain, **attributes)
    first = np.ones(types[0].shape, "float32" if types[0].dtype == "f32" else "int64")
    k(first, np.array(GOOD.get(name, [0, 4, 1])))
    for values in BAD[name]:
        with pytest.raises(KernelFailed, match=f"^status {expected.code}$"):
            k(first, np.array(values))


def test_codes_and_texts_are_distinct():
    assert len({c.code for c in status.CHECKS}) == len({c.text for c in status.CHECKS}) == len(status.CHECKS)
    assert all(status.code_of(c.text) == c.code and status.describe(c.code) == c for c in status.CHECKS)
    assert status.code_of("another") == status.OTHER
