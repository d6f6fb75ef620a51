"""Every sample of every op: `infer` and `reference` agree with eager torch, and `lower` verifies as linalg."""

import pytest
from support.samples import assert_close, eager, inferred, kernel_module, reference, type_of

from lamina.dialects.op import all_ops

OPS = all_ops()
CASES = [(name, i) for name, op in OPS.items() if op.torch is not None for i in range(len(op.samples))]


@pytest.mark.parametrize("name,number", CASES, ids=[f"{n}-{i}" for n, i in CASES])
def test_infer_and_reference_equal_eager(name, number):
    op = OPS[name]
    sample = op.samples[number]
    expected = eager(op, sample)
    assert list(inferred(op, sample)) == [type_of(e) for e in expected]
    for actual, value in zip(reference(op, sample), expected, strict=True):
        assert_close(actual, value, op.numerics)


@pytest.mark.parametrize("name", [n for n, op in OPS.items() if op.lower is not None and op.samples])
def test_lowering_verifies_and_round_trips(name):
    module = kernel_module(OPS[name], OPS[name].samples)
    text = str(module)
    assert str(type(module).parse(text, module.context)) == text


def test_every_op_has_samples_and_an_eager_twin():
    missing = [n for n, op in OPS.items() if not op.samples or op.torch is None]
    assert set(missing) <= {"weight", "persistent", "pack", "materialize"}, missing
