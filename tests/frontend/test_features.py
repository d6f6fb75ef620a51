"""What docs/coverage.md says is compiled and no other test of this folder runs: eager's values, and nothing in eager."""

import copy
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

import lamina

X = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))


class Checkpointed(nn.Module):
    """A layer whose activations are computed again in the backward pass."""

    def __init__(self, **how):
        super().__init__()
        self.inner, self.outer, self.how = nn.Sequential(nn.Linear(8, 16), nn.GELU()), nn.Linear(16, 4), how

    def forward(self, x):
        return self.outer(checkpoint(self.inner, x, **self.how))


SELECTIVE = partial(create_selective_checkpoint_contexts, [torch.ops.aten.addmm.default])


@pytest.mark.parametrize("how", [{}, {"context_fn": SELECTIVE}], ids=["all", "selective"])
def test_checkpoint(how):
    model = Checkpointed(use_reentrant=False, **how)
    expected = torch.autograd.grad(model(X).square().sum(), list(model.parameters()))
    torch.compile(model, backend="lamina")(X).square().sum().backward()
    torch.testing.assert_close([p.grad for p in model.parameters()], list(expected), rtol=1e-4, atol=1e-5)
    assert not lamina.stats()["fallback"] and not lamina.stats()["failures"]


class Averaged(nn.Module):
    """Reads its buffer, as it was, through an op with several results and through one."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(8))
        self.register_buffer("mean", torch.arange(8.0))

    def forward(self, x):
        spread, middle = torch.var_mean(self.mean.cos() * self.scale, 0)
        y = (x - self.mean.sin()) * self.scale * spread + middle
        self.mean.lerp_(x.detach().mean(0), 0.1)
        return y.sin()


@pytest.mark.parametrize("make", [partial(nn.BatchNorm1d, 8), Averaged])
def test_checkpoint_of_what_updates_a_buffer(make):
    """As without a checkpoint: what is computed again in the backward pass neither reads the new value nor writes it once more."""
    model = nn.Sequential(nn.Linear(8, 8), make(), nn.Tanh())
    ours = copy.deepcopy(model)
    call = torch.compile(lambda x: checkpoint(ours, x, use_reentrant=False), backend="lamina")
    for _ in range(2):
        for run in (model, call):
            run(X).square().sum().backward()
    for of in (lambda m: [p.grad for p in m.parameters()], lambda m: list(m.buffers())):
        torch.testing.assert_close(of(ours), of(model), rtol=1e-4, atol=1e-5)
    assert not lamina.stats()["fallback"] and not lamina.stats()["failures"]


def gradient_of_each_sample(model, x):
    def loss(parameters, row):
        return torch.func.functional_call(model, parameters, (row[None],)).square().sum()

    parameters = {name: p.detach() for name, p in model.named_parameters()}
    return torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(parameters, x)


TRANSFORMS = {
    "vmap": lambda x: torch.func.vmap(lambda r: torch.softmax(r, 0))(x),
    "gradients of each sample": partial(gradient_of_each_sample, nn.Linear(8, 3)),
    "hessian": lambda x: torch.func.hessian(lambda x: (x.sin() * x).prod())(x[0]),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_of_functions(name):
    f = TRANSFORMS[name]
    torch.testing.assert_close(torch.compile(f, backend="lamina")(X), f(X), rtol=1e-4, atol=1e-4)
    assert lamina.stats()["compiled_nodes"] and not lamina.stats()["fallback"]


def test_sizes_that_nothing_is_known_of():
    f = torch.compile(lambda x: (x * 2).sum(0) + x.shape[0], backend="lamina")
    for rows in (4, 1, 0):
        x = X[:rows].clone()
        torch._dynamo.decorators.mark_unbacked(x, 0)
        torch.testing.assert_close(f(x), (x * 2).sum(0) + rows)
    assert lamina.stats()["graphs"] == 1 and not lamina.stats()["fallback"]


def test_jagged_rows():
    rows, layer = torch.nested.nested_tensor([X[:3], X[1:]], layout=torch.jagged), nn.Linear(8, 4)
    torch.compile(lambda t: layer(t).relu(), backend="lamina")(rows).values().sum().backward()
    (expected,) = torch.autograd.grad(F.relu(layer(torch.cat([X[:3], X[1:]]))).sum(), [layer.weight])
    torch.testing.assert_close(layer.weight.grad, expected, rtol=1e-4, atol=1e-5)
    assert lamina.stats()["compiled_nodes"] and not lamina.stats()["fallback"]
