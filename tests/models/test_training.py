"""Training through torch.compile: the gradient, and the parameters after steps of SGD, against eager and float64."""

import copy
import math

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


# A gradient that is wrong by this share of itself must be found in every parameter.
NOTICED = 1e-3
VANISHING = 1e-14  # a gradient of which float64 keeps nothing but rounding


def wrong_gradients(model, got, eager, exact, args, noticed=NOTICED):
    """What is wrong with the gradients `got`: a line for each parameter whose error is more than its condition excuses.

    Errors are the largest of an element, relative to the gradient's largest element. Behind ReLU and batch norm a
    gradient is ill-conditioned: a value within rounding of zero decides whether a term counts, and the terms nearly
    cancel. Eager's own errors change by half when it sums in another order (convolutions without oneDNN). So twice the
    larger error of the two orders is allowed, plus what moving the parameters by one unit in the last place does to the
    gradient in float64. An allowance in which an error of `noticed` could hide excuses nothing: it is a fault itself.
    Only a gradient of zero (that of an attention's key bias, which softmax cancels) has no share to be wrong by: there
    all of it is rounding, whose size is judged alike.
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
        allowed = 2 * max(orders) + condition + FLOOR
        if not ours <= allowed:
            wrong.append(f"{name}: {ours:.1e}, eager {orders}, an ulp {condition:.1e}")
        if not allowed < noticed and scale > VANISHING:
            wrong.append(f"{name}: {allowed:.1e} would be allowed, eager {orders}, an ulp {condition:.1e}")
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
    # at real size one value of ResNet-18 on the other side of a ReLU is 5e-3 of a gradient: float64 has to tell
    assert not wrong_gradients(start, got[0], theirs[0], exact[0], args, NOTICED if zoo is SMALL else math.inf)
    for a, b in zip(model.buffers(), eager.buffers()):
        torch.testing.assert_close(a, b)
    if zoo is ZOO:
        wide = start.double()
        for g, truth in zip(
            backward(wide, torch.compile(wide, backend="lamina"), doubled(args)), exact[0], strict=True
        ):
            torch.testing.assert_close(g, truth, rtol=0, atol=1e-9 * truth.abs().max().item() + VANISHING)


@pytest.mark.parametrize("name", NAMES)
def test_a_slightly_wrong_gradient_is_found_in_every_parameter(name):
    model, args = prepared(name, SMALL)
    precise, eager = copy.deepcopy(model).double(), copy.deepcopy(model)
    exact, right = backward(precise, precise, doubled(args)), backward(eager, eager, args)
    assert not wrong_gradients(model, right, right, exact, args)
    found = wrong_gradients(model, [g * (1 + NOTICED) for g in right], right, exact, args)
    assert len(found) == sum(bool(g.abs().max() > VANISHING) for g in exact)


def test_gradient_of_heads_that_share_keys():
    q, k, v = (torch.randn(2, heads, 5, 8, requires_grad=True) for heads in (6, 2, 2))

    def attention(q, k, v):
        return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)

    COUNTERS.reset()
    got = torch.autograd.grad(torch.compile(attention, backend="lamina")(q, k, v).square().sum(), (q, k, v))
    assert not COUNTERS.snapshot()["fallback"]
    for a, b in zip(got, torch.autograd.grad(attention(q, k, v).square().sum(), (q, k, v))):
        torch.testing.assert_close(a, b)
