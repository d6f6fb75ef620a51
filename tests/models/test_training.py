"""Training through torch.compile: the gradient, and the parameters after steps of SGD, against eager and float64."""

import copy

import pytest
import torch
from support.models import SMALL, ZOO, compare
from torch import nn

from lamina.frontend import dynamo  # noqa: F401
from lamina.frontend.stats import COUNTERS

NAMES = ("mlp", "resnet18", "bert_small", "gpt2_small")


def prepared(name, zoo):
    """The model in training mode without dropout, whose random numbers float64 would not draw alike; its arguments."""
    model, args = zoo[name]()
    for module in model.train().modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        for field in ("dropout", "dropout_prob", "attention_dropout"):
            if isinstance(getattr(module, field, None), float):
                setattr(module, field, 0.0)
    if name == "resnet18":  # batch norm of one image has too little to average
        args = (torch.randn(4, *args[0].shape[1:]),)
    return model, args


def train(model, call, args, steps):
    """The gradient of the first step and the parameters after the last one, each as one vector."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    first = torch.empty(0)
    for step in range(steps):
        optimizer.zero_grad()
        sum(t.square().mean() for t in differentiable(call(*args))).backward()  # type: ignore[union-attr]
        if not step:
            first = vector(p.grad for p in model.parameters() if p.grad is not None)
        optimizer.step()
    return first, vector(p.detach() for p in model.parameters())


def differentiable(outputs):
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    return [t for t in outputs if t.requires_grad]


def vector(tensors):
    return torch.cat([t.flatten() for t in tensors])


def doubled(args):
    return [a.double() if a.is_floating_point() else a for a in args]


@pytest.mark.parametrize(
    "name, zoo",
    [
        *(pytest.param(n, SMALL, id=n) for n in NAMES),
        *(pytest.param(n, ZOO, id=f"{n}-real", marks=pytest.mark.full) for n in NAMES),
    ],
)
def test_steps_of_sgd(name, zoo):
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    COUNTERS.reset()
    model, args = prepared(name, zoo)
    eager, precise = copy.deepcopy(model), copy.deepcopy(model).double()
    got = train(model, torch.compile(model, backend="lamina"), args, 3)
    found = COUNTERS.snapshot()
    assert (
        found["training_graphs"] == 2 and not found["fallback"] and not found["failures"] and not found["graph_breaks"]
    )
    assert not compare(got, train(eager, eager, args, 3), train(precise, precise, doubled(args), 3)).faults
    for a, b in zip(model.buffers(), eager.buffers()):
        torch.testing.assert_close(a, b)


def test_gradient_of_heads_that_share_keys():
    q, k, v = (torch.randn(2, heads, 5, 8, requires_grad=True) for heads in (6, 2, 2))

    def attention(q, k, v):
        return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)

    COUNTERS.reset()
    got = torch.autograd.grad(torch.compile(attention, backend="lamina")(q, k, v).square().sum(), (q, k, v))
    assert not COUNTERS.snapshot()["fallback"]
    for a, b in zip(got, torch.autograd.grad(attention(q, k, v).square().sum(), (q, k, v))):
        torch.testing.assert_close(a, b)
