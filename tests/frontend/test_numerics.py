"""`numerics`: where values of 16 bits are rounded."""

import pytest
import torch
from torch.nn import functional as F


def chain(x):
    return torch.sigmoid(x * 1.7 + 0.3) * x - x * 0.1


def layer(x):
    return (
        F.gelu(F.linear(x, torch.full((24, 16), 0.25, dtype=x.dtype), torch.full((24,), 1.5, dtype=x.dtype))) * x[:, :1]
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("function", [chain, layer])
def test_fast_rounds_what_is_stored_and_eager_what_torch_does(function, dtype):
    x = torch.randn(64, 16).to(dtype)
    exact = function(x.double())
    once = (exact.to(dtype).double() - exact).abs().max().item()
    torch._dynamo.reset()
    with torch.no_grad():
        eager, fast = (
            torch.compile(function, backend="lamina", options={"numerics": n}, fullgraph=True)(x).double()
            for n in ("eager", "fast")
        )
        mine = (eager - exact).abs().max().item()
        torchs = (function(x).double() - exact).abs().max().item()
    assert (fast - exact).abs().max().item() < 1.5 * once
    assert 1.5 * once < mine <= 1.5 * torchs


def test_a_double_is_still_rounded_to_float():
    x = torch.randn(100, dtype=torch.float64)
    compiled = torch.compile(lambda x: x.float().double() * 2, backend="lamina", options={"numerics": "fast"})
    assert torch.equal(compiled(x), x.float().double() * 2)


BOUNDS = {
    "relu": torch.relu,
    "relu6": F.relu6,
    "at least 0": lambda x: x.clamp(min=0.0),
    "at most -0": lambda x: x.clamp(max=-0.0),
    "between -0 and 0": lambda x: x.clamp(-0.0, 0.0),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", BOUNDS)
def test_a_zero_at_a_bound_keeps_its_sign(name, dtype):
    """As eager's on x86; in whole vectors and in what is left of them."""
    function = BOUNDS[name]
    x = torch.tensor([0.0, -0.0, 1.0, -1.0, float("nan"), float("inf"), -float("inf")] * 19, dtype=dtype)
    got = torch.compile(function, backend="lamina")(x)
    torch.testing.assert_close(got, function(x), rtol=0, atol=0, equal_nan=True)
    kept = x == 0
    assert torch.equal(got[kept].signbit(), x[kept].signbit())
