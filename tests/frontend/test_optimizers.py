"""`optimizer.step` under torch.compile: Dynamo's graphs then hold parameters and state themselves."""

import copy

import pytest
import torch
from torch import nn

from lamina.frontend.stats import COUNTERS

MAKERS = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.01),
    "adamw, all at once": lambda parameters: torch.optim.AdamW(parameters, lr=0.01, foreach=True),
    "rmsprop": lambda parameters: torch.optim.RMSprop(parameters, lr=0.01, momentum=0.9),
}


@pytest.mark.parametrize("name", MAKERS)
def test_steps_are_eagers(name):
    torch.manual_seed(0)
    eager = nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 3))
    ours = copy.deepcopy(eager)
    one, two = MAKERS[name](eager.parameters()), MAKERS[name](ours.parameters())
    step = torch.compile(two.step, backend="lamina")
    for _ in range(3):
        for a, b in zip(eager.parameters(), ours.parameters()):
            a.grad = torch.randn_like(a)
            b.grad = a.grad.clone()
        one.step()
        step()
    for a, b in zip(eager.parameters(), ours.parameters()):
        torch.testing.assert_close(b, a, rtol=1e-5, atol=1e-6)
    stats = COUNTERS.snapshot()
    assert stats["compiled_nodes"] and not stats["fallback"]


UPDATES = {
    "add": lambda p, a, b, n: p.add_(a, alpha=n),
    "sub": lambda p, a, b, n: p.sub_(a, alpha=n),
    "rsub": lambda p, a, b, n: torch.rsub(p, a, alpha=n),
    "addcmul": lambda p, a, b, n: p.addcmul_(a, b, value=n),
    "addcdiv": lambda p, a, b, n: p.addcdiv_(a, b, value=n),
    "addcmul, a new tensor": lambda p, a, b, n: torch.addcmul(p, a, b, value=n),
    "lerp": lambda p, a, b, n: p.lerp_(a, n),
    "lerp by a tensor": lambda p, a, b, n: torch.lerp(p, a, b.abs().clamp(max=1)),
    "all at once": lambda p, a, b, n: (
        torch._foreach_add([p, a], [a, b], alpha=n) + torch._foreach_addcmul([p], [a], [b], value=n)
        + torch._foreach_addcdiv([p], [a], [b], value=n) + torch._foreach_lerp([p], [a], n)
    ),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", UPDATES)
def test_updates_are_bitwise_eagers(name, dtype):
    """Eager has one multiply-add in each, and where it rounds before that shows in the last bit."""
    random = torch.Generator().manual_seed(0)
    for number in (0.37, 0.9, -2.5, 1.0):
        p, a, b = (torch.randn(4096, generator=random, dtype=torch.float64).to(dtype) for _ in range(3))
        expected = UPDATES[name](p.clone(), a, b, number)
        got = torch.compile(UPDATES[name], backend="lamina")(p.clone(), a, b, number)
        torch.testing.assert_close(got, expected, rtol=0, atol=0)
    assert not COUNTERS.snapshot()["fallback"]
