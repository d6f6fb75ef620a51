"""Training through torch.compile: the gradient, and the parameters after steps of SGD, against eager and float64."""

import copy

import pytest
import torch
from support.models import FLOOR, SMALL, ZOO, compare
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
    """The gradients of the first step, and the parameters after the last one as one vector."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    first: list[torch.Tensor] = []
    for _ in range(steps):
        optimizer.zero_grad()
        gradients = backward(model, call, args)
        first = first or [g.clone() for g in gradients]
        optimizer.step()
    return first, vector(p.detach() for p in model.parameters())


def backward(model, call, args):
    """The gradients of the parameters that have one; the loss is the mean square of every output."""
    sum(t.square().mean() for t in differentiable(call(*args))).backward()  # type: ignore[union-attr]
    return [p.grad for p in model.parameters() if p.grad is not None]


def differentiable(outputs):
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    return [t for t in outputs if t.requires_grad]


def vector(tensors):
    return torch.cat([t.flatten() for t in tensors])


def doubled(args):
    return [a.double() if a.is_floating_point() else a for a in args]


def ulp_apart(model):
    """A float64 copy of `model` whose parameters are one unit of f32's last place larger or smaller."""
    moved = copy.deepcopy(model).double()
    for p in moved.parameters():
        p.data *= 1 + 2**-23 * (2 * torch.randint(0, 2, p.shape) - 1)
    return moved


def wrong_gradients(model, got, eager, exact, args):
    """The parameters whose gradient is further from float64 than its condition excuses; relative to its largest element.

    Behind ReLU and batch norm a gradient is ill-conditioned: a value within rounding of zero decides whether a term
    counts, and the terms nearly cancel. Eager's own errors change by half when it sums in another order (convolutions
    without oneDNN), and an order of ours can have twice those of a parameter although it has the same over all. So twice the larger error of the two orders is allowed, plus what moving the
    parameters by one unit in the last place does to the gradient in float64.
    """
    with torch.backends.mkldnn.flags(enabled=False):
        plain = copy.deepcopy(model)
        other = backward(plain, plain, args)
    moved = ulp_apart(model)
    shaken = backward(moved, moved, doubled(args))
    names = [name for name, p in plain.named_parameters() if p.grad is not None]
    wrong = []
    for name, *tensors, truth in zip(names, got, eager, other, shaken, exact, strict=True):
        scale = truth.abs().max().clamp_min(1e-30)
        ours, *orders, condition = ((t - truth).abs().max().item() / scale.item() for t in tensors)
        if not ours <= 2 * max(orders) + condition + FLOOR:
            wrong.append(f"{name}: {ours:.1e}, eager {orders}, an ulp {condition:.1e}")
    return wrong


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
    eager, precise, start = copy.deepcopy(model), copy.deepcopy(model).double(), copy.deepcopy(model)
    got = train(model, torch.compile(model, backend="lamina"), args, 3)
    found = COUNTERS.snapshot()
    assert (
        found["training_graphs"] == 2 and not found["fallback"] and not found["failures"] and not found["graph_breaks"]
    )
    theirs, exact = train(eager, eager, args, 3), train(precise, precise, doubled(args), 3)
    assert not compare(got[1], theirs[1], exact[1]).faults
    assert not wrong_gradients(start, got[0], theirs[0], exact[0], args)
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
