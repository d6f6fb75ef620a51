"""Compiled autograd, and derivatives in forward mode."""

import torch
from torch.autograd import forward_ad

import lamina

X = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))


def test_a_backward_pass_that_compiled_autograd_captured():
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4))
    expected = torch.autograd.grad(model(X).square().sum(), list(model.parameters()))

    def step(x):
        model(x).square().sum().backward()

    with torch._dynamo.config.patch(compiled_autograd=True):
        torch.compile(step, backend="lamina")(X)
    torch.testing.assert_close([p.grad for p in model.parameters()], list(expected))
    found = lamina.stats()
    assert not found["failures"] and (found["graphs"], found["training_graphs"]) == (1, 1)


def test_tangents_are_not_lost():
    """Dynamo does not ask whether arguments have tangents, and AOTAutograd drops them."""
    f = torch.compile(lambda x: x.sin() * 2, backend="lamina")
    torch.testing.assert_close(f(X), X.sin() * 2)
    with forward_ad.dual_level():
        tangent = forward_ad.unpack_dual(f(forward_ad.make_dual(X, torch.ones_like(X)))).tangent
        torch.testing.assert_close(tangent, X.cos() * 2)
    assert "forward mode" in lamina.stats()["failures"][0]


def test_derivatives_in_forward_mode_inside_what_is_compiled():
    found = torch.compile(lambda x: torch.func.jvp(torch.tanh, (x,), (x,)), backend="lamina")(X)
    torch.testing.assert_close(found, (X.tanh(), (1 - X.tanh() ** 2) * X))
    assert lamina.stats()["compiled_nodes"]
