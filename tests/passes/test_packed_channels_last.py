"""Channels last on CPUs: networks give eager's numbers, whose kernels are few, and graphs that would be turned stay as they are."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import lamina
from lamina.targets import get_target

pytestmark = pytest.mark.skipif(get_target("native").features.has_lane_fma, reason="made for other tiles")


class Block(nn.Module):
    """A bottleneck of ResNet."""

    def __init__(self, inputs, width, outputs, stride):
        super().__init__()
        self.a, self.b = nn.Conv2d(inputs, width, 1), nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.c, self.norm = nn.Conv2d(width, outputs, 1), nn.BatchNorm2d(width)
        self.skip = nn.Conv2d(inputs, outputs, 1, stride) if inputs != outputs else nn.Identity()

    def forward(self, x):
        return F.relu(self.c(F.relu(self.norm(self.b(F.relu(self.a(x)))))) + self.skip(x))


class Network(nn.Module):
    """A stem with a pool, blocks, the mean of positions and classes."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 7, 2, 3), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        self.blocks = nn.Sequential(Block(16, 24, 40, 2), Block(40, 24, 40, 1))
        self.classes = nn.Linear(40, 10)

    def forward(self, x):
        return self.classes(F.adaptive_avg_pool2d(self.blocks(self.stem(x)), 1).flatten(1))


class Joined(nn.Module):
    """Channels of two convolutions side by side, and features that are returned as they are."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 20, 3, padding=1), nn.Conv2d(20, 100, 3, padding=1)
        self.c = nn.Conv2d(120, 40, 1)

    def forward(self, x):
        a = F.silu(self.a(x))
        y = self.c(torch.cat([a, self.b(a)], 1))
        return y.amax((2, 3)), F.max_pool2d(y, 2)


class Line(nn.Module):
    """Convolutions along one dim."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv1d(4, 40, 5, 2, 2), nn.Conv1d(40, 40, 3, dilation=2)

    def forward(self, x):
        return self.b(F.gelu(self.a(x))).mean(2)


class Grouped(nn.Module):
    """Between convolutions that suit is one of groups."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Conv2d(8, 32, 1), nn.Conv2d(32, 32, 3, groups=4), nn.Conv2d(32, 32, 1)

    def forward(self, x):
        return self.c(F.relu(self.b(F.relu(self.a(x))))).mean((2, 3))


class Normed(nn.Module):
    """Between convolutions that suit is a norm of planes."""

    def __init__(self):
        super().__init__()
        self.a, self.norm, self.b = nn.Conv2d(8, 32, 3), nn.GroupNorm(4, 32), nn.Conv2d(32, 32, 3)

    def forward(self, x):
        return self.b(self.norm(self.a(x))).mean((2, 3))


def compiled_equals_eager(model, x, **options):
    """What `lamina.compile` makes of the model; its results are as near to float64 as eager's, about."""
    with torch.no_grad():
        compiled = lamina.compile(model.eval(), (x,), **options)
        made, given, true = compiled(x), model(x), model.double()(x.double())
    for y, eagers, exact in zip(*(t if isinstance(t, tuple) else (t,) for t in (made, given, true)), strict=True):
        scale = exact.abs().max()
        assert (y - exact).abs().max() <= 2 * (eagers - exact).abs().max() + 1e-6 * scale
        assert y.stride() == eagers.stride()
    return compiled


@pytest.mark.parametrize(
    "model, shape",
    [(Network, (2, 3, 57, 64)), (Joined, (1, 3, 17, 20)), (Line, (2, 4, 61))],
    ids=lambda v: getattr(v, "__name__", ""),
)
def test_networks_equal_eager(model, shape):
    torch.manual_seed(0)
    assert "packed_last_conv" in compiled_equals_eager(model(), torch.randn(shape)).ir("kernels")


def test_nothing_is_turned_in_a_residual_network():
    """A kernel for each convolution with what follows it, the pool, the mean and the classes."""
    torch.manual_seed(0)
    text = compiled_equals_eager(Network(), torch.randn(1, 3, 64, 64)).ir("kernels")
    main = next(part for part in text.split("func.func") if "@main" in part)
    assert main.count("lamina.launch") == 8 + 3
    assert "lamina.conv" not in text and main.count("materialize") == 0


def test_symbolic_batch_and_sizes():
    torch.manual_seed(0)
    x = torch.randn(2, 3, 64, 96)
    sizes = {"x": {d: torch.export.Dim(name, min=32, max=256) for d, name in ((2, "h"), (3, "w"))}}
    sizes["x"][0] = torch.export.Dim("n", max=64)
    compiled = compiled_equals_eager(Network(), x, dynamic_shapes=sizes)
    assert "packed_last_conv" in compiled.ir("kernels")


@pytest.mark.parametrize("model", [Grouped, Normed])
def test_graphs_that_would_be_turned_stay(model):
    torch.manual_seed(0)
    assert "packed_last_conv" not in compiled_equals_eager(model(), torch.randn(1, 8, 20, 20)).ir("kernels")


def test_images_that_come_with_channels_last():
    torch.manual_seed(0)
    x = torch.randn(2, 16, 12, 10).to(memory_format=torch.channels_last)
    model = nn.Sequential(nn.Conv2d(16, 48, 3, padding=1), nn.ReLU(), nn.Conv2d(48, 32, 1), nn.AdaptiveAvgPool2d(1))
    compiled_equals_eager(model, x)


def test_weights_that_are_inputs_are_not_packed():
    def features(x, w):
        return F.relu(torch.conv2d(x, w)).mean((2, 3))

    compiled = lamina.compile(features, (torch.randn(1, 8, 20, 20), torch.randn(32, 8, 3, 3)))
    assert '"lamina.conv"' in compiled.ir("kernels")
