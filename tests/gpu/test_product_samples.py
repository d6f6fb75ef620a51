"""Samples of matrix products and convolutions, simulated as every kind of kernel that needs no copy engine."""

import numpy as np
import pytest
from mlir import ir
from support.samples import assert_close, attributes, build_kernel, eager, inferred, kernel_module, operands, type_of
from support.simulate_gpu import simulate

from lamina.dialects.dtypes import FLOAT8
from lamina.dialects.mlir_ops import build
from lamina.dialects.op import all_ops
from lamina.passes.linalg.linalg_builder import Tensor
from lamina.passes.pass_manager import PassFailure, run

ROOTS = {n: op for n, op in all_ops().items() if op.category in ("matmul", "conv")}
# what is made for the register tiles of CPUs, or has no emitter: the compiler takes their plain form
PLAIN = {"pack", "packed_conv", "packed_last_conv", "packed_grouped_matmul", "grouped_matmul"}


def suits(sample):
    """Transposed convolutions are made plain before; the simulator has no floats of 8 bits."""
    dtypes = {type_of(x).dtype for x in operands(sample) if x is not None}
    return not sample.attributes.get("transposed") and dtypes.isdisjoint(FLOAT8)


def is_plain(name, sample):
    return name in PLAIN or name == "packed_linear" and type_of(operands(sample)[0]).dtype in ("i8", "u8")


SAMPLES = [(n, i) for n, op in ROOTS.items() for i, s in enumerate(op.samples) if suits(s)]


@pytest.mark.parametrize("matrix", ["", "mma"])
@pytest.mark.parametrize("name, number", SAMPLES)
def test_sample(name, number, matrix):
    op = ROOTS[name]
    sample = op.samples[number]
    given = [x for x in operands(sample) if x is not None]
    module = root_module(op, sample)
    emit = f"lamina-emit-gpu-matmul{{matrix={matrix}}}" if matrix else "lamina-emit-gpu-matmul"
    with module.context, ir.Location.unknown():
        if is_plain(name, sample):
            with pytest.raises(PassFailure, match="of a GPU|on a GPU") as failed:
                run(module, emit)
            assert isinstance(failed.value.__cause__, NotImplementedError)  # what is compiled plain without a complaint
            return
        run(module, emit)
        (expected,) = eager(op, sample)
        (made,), status = simulate(module, given, [(expected.shape, np.dtype(expected.dtype))])
    assert status == 0
    assert_close(made, expected, "exact" if op.numerics == "exact" else "order")


@pytest.mark.parametrize("name, number", [(n, i) for n, i in SAMPLES if is_plain(n, ROOTS[n].samples[i])])
def test_the_plain_form_of_what_has_no_other(name, number):
    op = ROOTS[name]
    sample = op.samples[number]
    given = [x for x in operands(sample) if x is not None]
    module = kernel_module(op, [sample], wide_sums=True)
    with module.context, ir.Location.unknown():
        run(module, "lamina-emit-gpu-loops")
        (expected,) = eager(op, sample)
        (made,), status = simulate(module, given, [(expected.shape, np.dtype(expected.dtype))])
    assert status == 0
    assert_close(made, expected, "exact" if op.numerics == "exact" else "order")


def root_module(op, sample):
    """A linalg-level kernel around one op, which is kept."""
    (result,) = inferred(op, sample)

    def body(b, *arguments):
        left = iter(arguments)
        values = [None if x is None else next(left).value for x in operands(sample)]
        with arguments[0].value.context as context:
            context.allow_unregistered_dialects = True
            made = build(op.name, values, attributes(op, sample), ir.Location.unknown(), b.ip)
        return Tensor(made.results[0], result)

    types = [type_of(x) for x in operands(sample) if x is not None]
    return build_kernel(types, [result], body, kind=op.category)
