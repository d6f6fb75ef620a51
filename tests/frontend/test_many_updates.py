"""Positions that get thousands of updates in 16 bits: at most twice as far from float64 as eager is."""

import pytest
import torch

N = 3000
WHERE = torch.zeros(N, 3, dtype=torch.int64)
UPDATES = {
    "scatter_add": lambda x, s: x.scatter_add(0, WHERE, s),
    "scatter": lambda x, s: x.scatter(0, WHERE, s, reduce="add"),
    "sum": lambda x, s: x.scatter_reduce(0, WHERE, s, "sum", include_self=False),
    "mean": lambda x, s: x.scatter_reduce(0, WHERE, s, "mean"),
    "prod": lambda x, s: x.scatter_reduce(0, WHERE, 1 + (s - 0.5) / 64, "prod"),
    "index_add": lambda x, s: x.index_add(0, WHERE[:, 0], s),
    "index_put": lambda x, s: x.index_put((WHERE[:, 0],), s, accumulate=True),
}


def gathered(x, s):
    (grad,) = torch.autograd.grad((x.gather(0, WHERE) * s).sum(), x)
    return grad


def close(function, dtype):
    torch._dynamo.reset()
    x, s = torch.ones(2, 3, dtype=dtype, requires_grad=function is gathered), torch.rand(N, 3).to(dtype)
    got, eager = torch.compile(function, backend="lamina")(x, s), function(x, s)
    exact = function(x.detach().double().requires_grad_(x.requires_grad), s.double())
    error = lambda y: ((y.double() - exact).abs().max() / exact.abs().max()).item()
    assert error(got) <= 2 * error(eager) + torch.finfo(dtype).eps


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", UPDATES)
def test_updates(name, dtype):
    with torch.no_grad():
        close(UPDATES[name], dtype)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_gradient_of_a_gather(dtype):
    close(gathered, dtype)
