"""What a training step saves of large values, and that gradients are eager's whatever is computed again."""

import pytest
import torch
from torch.nn import functional as F

from lamina.frontend import (
    dynamo,  # noqa: F401
    recomputed,
)


@pytest.fixture(autouse=True)
def everything_is_large(monkeypatch):
    monkeypatch.setattr(recomputed, "LARGE", 1)
    torch._dynamo.reset()


def step(function, *given):
    """The result, the gradients, and what is saved for them."""
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        result = function(*given)
    gradients = torch.autograd.grad(result, [t for t in given if t.requires_grad])
    return result, gradients, [(t.dtype, tuple(t.shape)) for t in saved]


@pytest.mark.parametrize("reduction, dim", [("mean", 1), ("sum", 1), ("mean", -1)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_loss_saves_its_logits(dtype, reduction, dim):
    x, w = (torch.randn(s, dtype=dtype, requires_grad=True) for s in ((7, 16), (101, 16)))
    target = torch.randint(0, 101, (7,))
    target[2] = -100  # ignored

    def loss(x, w):
        return F.nll_loss(F.log_softmax((x @ w.t()).float(), dim), target, reduction=reduction)

    got, gradients, saved = step(torch.compile(loss, backend="lamina"), x, w)
    expected, right, _ = step(loss, x, w)
    torch.testing.assert_close(got, expected)
    torch.testing.assert_close(gradients, right)
    assert [kind for kind, shape in saved if shape == (7, 101)] == [dtype]


def test_what_tanh_gave_is_computed_again():
    x, w, v = (torch.randn(s, requires_grad=True) for s in ((7, 16), (16, 24), (24, 3)))

    def layer(x, w, v):
        y = x @ w
        return ((0.5 * y * (1 + torch.tanh(0.8 * (y + 0.04 * y * y * y)))) @ v).sum()

    got, gradients, saved = step(torch.compile(layer, backend="lamina"), x, w, v)
    expected, right, _ = step(layer, x, w, v)
    torch.testing.assert_close(got, expected)
    torch.testing.assert_close(gradients, right)
    assert sum(sorted(shape) == [7, 24] for _, shape in saved) == 1  # what gelu takes


@pytest.mark.parametrize(
    "activation, kept",
    [(F.gelu, 1), (lambda x: F.silu(x) * x.sin(), 1), (F.relu, 1), (lambda x: F.layer_norm(x, (24,)), 2)],
)
def test_what_a_product_reads_is_computed_again_if_that_saves_memory(activation, kept):
    x, w, v = (torch.randn(s, requires_grad=True) for s in ((7, 16), (16, 24), (24, 3)))
    layer = lambda x, w, v: (activation(x @ w / 4) @ v).sum()
    got, gradients, saved = step(torch.compile(layer, backend="lamina"), x, w, v)
    expected, right, _ = step(layer, x, w, v)
    torch.testing.assert_close(got, expected)
    torch.testing.assert_close(gradients, right, rtol=1e-5, atol=1e-4)
    assert sum(sorted(shape) == [7, 24] for _, shape in saved) == kept


def test_rows_that_are_all_minus_infinity_stay_nan():
    x = torch.full((2, 5), -torch.inf, requires_grad=True)
    loss = lambda x: F.log_softmax(x, 1)[:, 0].sum()
    got, gradients, _ = step(torch.compile(loss, backend="lamina"), x)
    assert got.isnan() and torch.equal(gradients[0].isnan(), step(loss, x)[1][0].isnan())
