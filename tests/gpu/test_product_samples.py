"""Samples of matrix products and convolutions, simulated as every kind of kernel that needs no copy engine."""

import numpy as np
import pytest
from mlir import ir
from support.samples import assert_close, attributes, build_kernel, eager, inferred, operands, type_of
from support.simulate_gpu import simulate

from lamina.dialects.dtypes import FLOAT8
from lamina.dialects.mlir_ops import build
from lamina.dialects.op import all_ops
from lamina.passes.linalg.linalg_builder import Tensor
from lamina.passes.pass_manager import run

ROOTS = {
    "matmul": "matmul",
    "linear": "matmul",
    "packed_linear": "matmul",
    "conv": "conv",
    "channels_last_conv": "conv",
    "depthwise_conv": "conv",
}


def suits(name, sample):
    """Transposed convolutions are made plain before, bytes are packed for CPUs only; the simulator has no floats of 8 bits."""
    dtypes = {type_of(x).dtype for x in operands(sample) if x is not None}
    packed_bytes = name == "packed_linear" and dtypes & {"i8", "u8"}
    return not sample.attributes.get("transposed") and not packed_bytes and dtypes.isdisjoint(FLOAT8)


SAMPLES = [(n, i) for n in ROOTS for i, s in enumerate(all_ops()[n].samples) if suits(n, s)]


@pytest.mark.parametrize("matrix", ["", "mma"])
@pytest.mark.parametrize("name, number", SAMPLES)
def test_sample(name, number, matrix):
    op = all_ops()[name]
    sample = op.samples[number]
    given = [x for x in operands(sample) if x is not None]
    (result,) = inferred(op, sample)

    def body(b, *arguments):
        left = iter(arguments)
        values = [None if x is None else next(left).value for x in operands(sample)]
        with arguments[0].value.context as context:
            context.allow_unregistered_dialects = True
            made = build(name, values, attributes(op, sample), ir.Location.unknown(), b.ip)
        return Tensor(made.results[0], result)

    module = build_kernel([type_of(x) for x in given], [result], body, kind=ROOTS[name])
    with module.context, ir.Location.unknown():
        run(module, f"lamina-emit-gpu-matmul{{matrix={matrix}}}" if matrix else "lamina-emit-gpu-matmul")
        (expected,) = eager(op, sample)
        (made,), status = simulate(module, given, [(expected.shape, np.dtype(expected.dtype))])
    assert status == 0
    assert_close(made, expected, "exact" if op.numerics == "exact" else "order")
