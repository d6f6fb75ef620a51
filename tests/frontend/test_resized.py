"""Nearest resizing under torch.compile: whole where sizes are known, in any dtype; by places where they are not."""

import pytest
import torch
import torch.nn.functional as F

from lamina import stats
from lamina.frontend.calls import launcher

from .conftest import check


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.uint8])
@pytest.mark.parametrize("how", [{"scale_factor": 2}, {"scale_factor": 1.7}, {"size": (5, 30)}])
@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
def test_values(dtype, how, mode):
    x = torch.randint(0, 200, (2, 3, 9, 14)).to(dtype)
    check(lambda x: F.interpolate(x, mode=mode, **how), x)
    check(lambda x: F.interpolate(x, mode=mode, **how), x.contiguous(memory_format=torch.channels_last))


def test_bf16_is_not_widened(monkeypatch):
    """torch's decomposition casts to f32 and back."""
    parts, compile_part = [], launcher.compile_part
    monkeypatch.setattr(launcher, "compile_part", lambda p, *a, **k: parts.append(p) or compile_part(p, *a, **k))
    with torch.no_grad():
        torch.compile(lambda x: F.interpolate(x, scale_factor=2), backend="lamina")(torch.randn(1, 2, 8, 8).bfloat16())
    assert {node.op for part in parts for node in part.graph.nodes}.isdisjoint({"cast", "index"})


def test_symbolic_sizes():
    before = stats()["eager_nodes"]
    check(lambda x: F.interpolate(x, scale_factor=2), torch.randn(2, 3, 9, 14), dynamic=True)
    assert stats()["eager_nodes"] == before


def test_gradients():
    check(lambda x: F.interpolate(x, scale_factor=2), torch.randn(2, 3, 9, 14, requires_grad=True), grad=True)
