"""Sizes of 0 in each kind of kernel: results are empty, an identity, NaN or the other operand, as eager has them."""

import pytest
import torch
from torch.nn import functional as F

import lamina
from lamina.runtime.errors import LaminaRuntimeError

from .conftest import check

ROWS, ONES = torch.ones(4, 8), torch.ones(5, 8)


def sums(x):
    norms = torch.linalg.vector_norm(x), torch.linalg.vector_norm(x, 1, 0), torch.linalg.vector_norm(x, 3, 1)
    return (
        *norms,
        x.sum(),
        x.sum(0),
        x.sum(1),
        x.prod(0),
        x.mean(0),
        x.var(1),
        (x > 0).any(0),
        (x > 0).all(0),
        x.amax(1),
    )


def rows(x):
    return x.softmax(1), x.softmax(0), F.layer_norm(x, (8,)), F.group_norm(x, 2), x.logsumexp(1), x.argmax(1)


def products(x):
    square = torch.addmm(torch.ones(8), x.t(), x)
    return x @ ONES.t(), x.t() @ x, F.gelu(F.linear(x, ONES)), square, x[:, None] @ x[:, :, None]


def moves(x):
    where = torch.zeros(x.shape, dtype=torch.int64)
    joined = torch.cat([x, ROWS]), torch.cat([x, x + 1], 1), F.pad(x, (1, 1, 2, 0)), x.flip(0)
    return (
        *joined,
        x.gather(1, where),
        ROWS.scatter_add(0, where, x),
        ROWS.index_put((where[:, 0],), x, accumulate=True),
    )


def orders(x):
    return x.cumsum(0), x.cumsum(1), x.sort(0)[0], x.sort(1)[1], x.topk(2, 1)[0], x.cummax(0)[0]


def windows(x):
    tall, one = x[:, None], x[None, None]
    return F.conv1d(tall, torch.ones(2, 1, 3)), F.max_pool1d(tall, 2), F.scaled_dot_product_attention(one, one, one)


def depths(x):
    """Products over nothing, of what is computed and of views of it."""
    y = F.elu(x.t())
    one, mask = y[None, None], (y @ y.t() > 0) | torch.eye(8, dtype=torch.bool)
    return torch.mv(y, y[0]), y.exp() @ x.exp(), F.scaled_dot_product_attention(one, one, one, attn_mask=mask)


KINDS = [sums, rows, products, moves, orders, windows, depths]


@pytest.mark.parametrize("view", [lambda x: x[:, 8:], lambda x: x.diagonal(9)[:, None]], ids=["slice", "diagonal"])
@pytest.mark.usefixtures("mode")
def test_gradients_of_empty_views_are_zeros(view):
    """As of rotary embeddings that turn all elements of a head and leave none (Phi-3)."""
    x = torch.randn(4, 8, requires_grad=True)
    stats = check(lambda x: (x.exp(), view(x.exp()).sum(1)), x, grad=True)
    assert not stats["fallback"] and not stats["failures"]


@pytest.mark.parametrize("function", KINDS)
@pytest.mark.usefixtures("mode")
def test_nothing_runs_in_eager(function):
    stats = check(function, torch.ones(0, 8))
    assert not stats["fallback"] and not stats["failures"] and not stats["plain_kernels"]


@pytest.mark.parametrize("function", KINDS)
def test_size_that_may_be_0(function):
    n = torch.export.Dim("n", min=0, max=64)
    compiled = lamina.compile(function, (torch.randn(5, 8),), dynamic_shapes=({0: n},))
    for size in (0, 1, 3):
        x = torch.randn(size, 8)
        with torch.no_grad():
            for got, expected in zip(compiled(x), function(x), strict=True):
                torch.testing.assert_close(got, expected, rtol=2e-5, atol=2e-5, equal_nan=True)


def test_extreme_of_nothing_is_an_error():
    n = torch.export.Dim("n", min=0, max=64)
    compiled = lamina.compile(lambda x: x.amax(0), (torch.randn(5, 8),), dynamic_shapes=({0: n},))
    with pytest.raises(LaminaRuntimeError, match="'n' is 0 and must be 1..64"):
        compiled(torch.ones(0, 8))


def test_mean_over_nothing_and_a_size():
    """The product of the reduced sizes is 0, and yet not all of them are numbers."""
    x = torch.randn(4, 0, 1)
    torch._dynamo.mark_dynamic(x, 0)
    stats = check(lambda x: x.exp().mean(), x, dynamic=True)
    assert not stats["fallback"] and not stats["failures"] and not stats["plain_kernels"]
