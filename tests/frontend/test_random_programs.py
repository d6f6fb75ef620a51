"""Random programs beside eager: values, dtypes, strides, aliasing, what is written, gradients."""

import pytest

from .conftest import check
from .random_programs import Program


@pytest.mark.parametrize("seed", range(6))
def test_values(seed):
    program = Program(seed)
    check(program.function, *program.inputs)


@pytest.mark.parametrize("seed", range(100, 103))
def test_gradients(seed):
    program = Program(seed, grad=True)
    check(program.function, *program.inputs, grad=True, tolerance=1e-4)


@pytest.mark.parametrize("seed", range(200, 203))
def test_symbolic_sizes(seed):
    program = Program(seed)
    check(program.function, *program.inputs, dynamic=True)
