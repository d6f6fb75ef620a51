"""Global settings of torch hold inside compiled functions, and changing them between calls is seen."""

import pytest
import torch
from torch.nn import functional as F

from lamina.frontend import dynamo

from .conftest import check


@pytest.fixture(autouse=True)
def settings():
    yield
    torch.set_default_dtype(torch.float32)
    torch.use_deterministic_algorithms(False)
    torch.set_float32_matmul_precision("highest")


def test_default_dtype():
    torch.set_default_dtype(torch.float64)
    check(lambda x: x + torch.ones(3), torch.randn(3, dtype=torch.float32))


def test_deterministic_algorithms():
    torch.use_deterministic_algorithms(True)
    check(lambda x, i: x.index_add(0, i, x * 2), torch.randn(4, 3), torch.tensor([1, 1, 0, 3]))


def test_matmul_precision_leaves_f32_products_as_they_are():
    torch.set_float32_matmul_precision("medium")
    check(lambda x: F.relu(x @ x), torch.randn(40, 40))


def test_tf32_is_followed(monkeypatch):
    """What torch allows its own products of GPUs is allowed to ours, and a change compiles again."""
    seen, compile_part = [], dynamo.launcher.compile_part

    def record(part, options, *given, **named):
        seen.append(options.numerics)
        return compile_part(part, options, *given, **named)

    monkeypatch.setattr(dynamo.launcher, "compile_part", record)
    compiled = torch.compile(lambda x: x @ x, backend="lamina")
    for precision in ("highest", "high", "high"):
        torch.set_float32_matmul_precision(precision)
        compiled(torch.randn(8, 8))
    assert seen == ["eager", "tf32"]


def test_gradients_on_and_off_between_calls():
    def f(x):
        return (x * x).sum()

    compiled = torch.compile(f, backend="lamina")
    x = torch.randn(3, requires_grad=True)
    with torch.no_grad():
        assert not compiled(x).requires_grad
        with torch.enable_grad():
            compiled(x).backward()
    torch.testing.assert_close(x.grad, 2 * x.detach())
    assert compiled(x).requires_grad
