"""Compare torch.compile(backend="lamina") with eager: values, types, strides, aliasing, mutation, gradients."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from lamina.frontend import dynamo  # noqa: F401  (registers the backend)
from lamina.frontend.stats import COUNTERS


@pytest.fixture(params=["interpreted", "native"])
def mode(request, monkeypatch):
    """Run by the ops' references on numpy, and compiled."""
    monkeypatch.setenv("LAMINA_INTERPRET", "1" if request.param == "interpreted" else "0")
    return request.param


@pytest.fixture(autouse=True)
def fresh_dynamo():
    torch._dynamo.reset()
    COUNTERS.reset()
    yield
    torch._dynamo.reset()


def flat(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [t for v in value for t in flat(v)] if isinstance(value, (list, tuple)) else []


def same(a: Any, b: Any, tolerance: float) -> None:
    assert type(a) is type(b) or isinstance(a, torch.Tensor)
    if isinstance(a, (list, tuple)):
        assert len(a) == len(b)
        for x, y in zip(a, b):
            same(x, y, tolerance)
    elif isinstance(a, torch.Tensor):
        assert (a.shape, a.dtype, a.stride()) == (b.shape, b.dtype, b.stride())
        assert a.requires_grad == b.requires_grad
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)
    else:
        assert a == b


def aliasing(tensors: list[torch.Tensor]) -> list[list[bool]]:
    storages = [t.untyped_storage().data_ptr() for t in tensors]
    return [[a == b and bool(t.numel()) for b in storages] for a, t in zip(storages, tensors)]


def copied(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return value.detach().clone(memory_format=torch.preserve_format).requires_grad_(value.requires_grad)


def check(function: Any, *args: Any, grad: bool = False, calls: int = 2, tolerance: float = 2e-5, **options: Any):
    """Call eager and compiled `calls` times each and compare everything that can be seen."""
    module = isinstance(function, torch.nn.Module)
    ours = copy.deepcopy(function) if module else function
    with torch.enable_grad() if grad else torch.no_grad():
        compiled = torch.compile(ours, backend="lamina", **options)
        for call in range(calls):
            one, two = [copied(a) for a in args], [copied(a) for a in args]
            torch.manual_seed(call)
            expected = function(*one)
            torch.manual_seed(call)
            got = compiled(*two)
            same(got, expected, tolerance)
            same(two, one, tolerance)
            assert aliasing(flat(got) + flat(two)) == aliasing(flat(expected) + flat(one))
            if grad:
                for outputs in (expected, got):
                    sum(t.double().square().sum() for t in flat(outputs) if t.requires_grad).backward()
                for x, y in zip(flat(one), flat(two)):
                    if x.grad is not None:
                        torch.testing.assert_close(y.grad, x.grad, rtol=tolerance, atol=tolerance)
            if module:
                compare_modules(ours, function, tolerance)
    return COUNTERS.snapshot()


def compare_modules(ours: torch.nn.Module, eager: torch.nn.Module, tolerance: float) -> None:
    for (name, x), (_, y) in zip(ours.named_parameters(), eager.named_parameters()):
        assert (x.grad is None) == (y.grad is None), name
        if y.grad is not None:
            torch.testing.assert_close(x.grad, y.grad, rtol=10 * tolerance, atol=10 * tolerance, msg=name)
    for (name, x), (_, y) in zip(ours.named_buffers(), eager.named_buffers()):
        torch.testing.assert_close(x, y, rtol=tolerance, atol=tolerance, msg=name)
