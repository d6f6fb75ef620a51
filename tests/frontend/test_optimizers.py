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
