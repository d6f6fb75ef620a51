"""Channels last: graphs give the same numbers, and convolutions, what joins them and pools keep that order."""

import ml_dtypes
import numpy as np
import pytest
import torch
from support.interpret_module import interpret
from torch import nn
from torch.nn import functional as F

from lamina.compiler.levels import graph_pipeline
from lamina.dialects.families.channels_last_conv import folding, suits_channels_last
from lamina.dialects.mlir_context import context
from lamina.dialects.record import TensorType
from lamina.frontend.export import from_program
from lamina.passes.graph.dataflow import functions, read_function
from lamina.passes.graph.import_graph import import_graph
from lamina.passes.pass_manager import run
from lamina.targets import get_target

HOPPER = get_target("sm_90a")


class Residual(nn.Module):
    """A block of ResNet, with a skip that is a convolution or nothing."""

    def __init__(self, stride):
        super().__init__()
        self.a, self.b = nn.Conv2d(64, 32, 1), nn.Conv2d(32, 64, 3, stride, 1, bias=False)
        self.m, self.n = nn.BatchNorm2d(32), nn.BatchNorm2d(64)
        self.skip = nn.Conv2d(64, 64, 1, stride) if stride > 1 else nn.Identity()

    def forward(self, x):
        return F.relu(self.n(self.b(F.relu(self.m(self.a(x))))) + self.skip(x))


class Stem(nn.Module):
    """What comes before the blocks of a ResNet, and their first convolution."""

    def __init__(self, kernel, stride, padding):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 32, kernel, stride, padding), nn.BatchNorm2d(32)
        self.next = nn.Conv2d(32, 64, 1)

    def forward(self, x):
        y = self.next(F.max_pool2d(F.relu(self.norm(self.conv(x))), 3, 2, 1))
        return F.adaptive_avg_pool2d(y, 1).flatten(1)


class Few(nn.Module):
    """Classes of each position, by a kernel of one element and by one of nine."""

    def __init__(self):
        super().__init__()
        self.down, self.classes, self.edges = nn.Conv2d(16, 32, 3), nn.Conv2d(32, 2, 1), nn.Conv2d(32, 3, 3, padding=1)

    def forward(self, x):
        y = F.relu(self.down(x))
        return self.classes(y), torch.sigmoid(self.edges(y))


class Levels(nn.Module):
    """A U-Net's two levels: a pool, a transposed convolution, a concatenation."""

    def __init__(self, kernel, padding=0):
        super().__init__()
        self.down = nn.Conv2d(16, 32, 3, padding=1)
        self.up = nn.ConvTranspose2d(32, 32, kernel, 2, padding, output_padding=kernel % 2)
        self.deep, self.last = nn.Conv2d(32, 32, 3, padding=1), nn.Conv2d(64, 32, 3, padding=1)

    def forward(self, x):
        y = F.relu(self.down(x))
        return self.last(torch.cat([y, self.up(self.deep(F.max_pool2d(y, 2)))], 1))


class Resized(nn.Module):
    """Rows and columns of an image, weighted: bilinear resizing as torch takes it apart."""

    def __init__(self):
        super().__init__()
        self.down, self.last = nn.Conv2d(16, 32, 3, padding=1), nn.Conv2d(32, 32, 1)

    def forward(self, x):
        y, rows, columns = F.relu(self.down(x)), torch.arange(4)[:, None], torch.arange(3) * 2
        return self.last(y[:, :, rows, columns] * 0.75 + y[:, :, rows + 1, columns] * 0.25)


class Excited(nn.Module):
    """Channels scaled by what all positions say, beside a result with channels first."""

    def __init__(self):
        super().__init__()
        self.conv, self.squeeze, self.excite = nn.Conv2d(16, 64, 3), nn.Conv2d(64, 32, 1), nn.Conv2d(32, 64, 1)

    def forward(self, x):
        y = self.conv(x)
        scale = torch.sigmoid(self.excite(F.relu(self.squeeze(y.mean((2, 3), keepdim=True)))))
        return y * scale, y.flatten(2).softmax(2)


class Inverted(nn.Module):
    """A block of MobileNet: a convolution of groups between two that suit."""

    def __init__(self, groups):
        super().__init__()
        self.a, self.b = nn.Conv2d(16, 32, 3), nn.Conv2d(32, 32, 1)
        self.middle = nn.Conv2d(32, 32, 3, padding=1, groups=groups)

    def forward(self, x):
        y = self.a(x)
        return self.b(F.relu6(self.middle(y))) + y


class Next(nn.Module):
    """A block of ConvNeXt: channels go last for a norm and two linear layers."""

    def __init__(self):
        super().__init__()
        self.stem, self.depthwise = nn.Conv2d(3, 32, 4, 4), nn.Conv2d(32, 32, 7, padding=3, groups=32)
        self.norm, self.up, self.down = nn.LayerNorm(32), nn.Linear(32, 64), nn.Linear(64, 32)

    def forward(self, x):
        x = self.stem(x)
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        return x + self.down(F.gelu(self.up(y))).permute(0, 3, 1, 2)


CASES = {
    "residual": (Residual(1), (2, 64, 6, 5)),
    "residual by 2": (Residual(2), (2, 64, 6, 5)),
    "stem of ResNet": (Stem(7, 2, 3), (2, 3, 18, 16)),
    "stem, odd": (Stem(3, 2, 1), (1, 3, 17, 13)),
    "stem by 1": (Stem(3, 1, 1), (1, 3, 9, 8)),
    "stem by 3": (Stem(5, 3, 0), (1, 3, 20, 17)),
    "few outputs": (Few(), (2, 16, 6, 7)),
    "levels": (Levels(2), (1, 16, 8, 6)),
    "levels, odd": (Levels(3, 1), (1, 16, 8, 6)),
    "resized": (Resized(), (2, 16, 6, 7)),
    "excited": (Excited(), (2, 16, 6, 7)),
    "groups": (Inverted(4), (2, 16, 6, 7)),
    "depthwise": (Inverted(32), (2, 16, 6, 7)),
    "next": (Next(), (1, 3, 20, 16)),
    "channels last already": (Residual(1), (2, 64, 6, 5)),
}


def lowered(model, x):
    """The module at the kernels level, its flows and its weights, of a model in bf16."""
    model = model.eval().to(torch.bfloat16)
    with torch.no_grad():
        exported = from_program(torch.export.export(model, (x,)))
    module = import_graph(exported.graph, context())
    run(module, graph_pipeline(HOPPER))
    flows = {name: read_function(f) for name, f in functions(module).items()}
    return module, flows, {name: array(t) for name, t in {**exported.weights, **exported.state}.items()}


def array(tensor):
    return tensor.detach().contiguous().view(torch.int16).numpy().view(ml_dtypes.bfloat16)


def roots(flows):
    """The names of the roots of kernels of `@main`, by kernel."""
    launched = [str(n.op.attributes["kernel"])[1:] for n in flows["main"].nodes if n.name == "launch"]
    return [
        [n.name for n in flows[k].nodes if n.category in ("conv", "matmul", "gather", "reduction") or "pool" in n.name]
        for k in launched
    ]


@pytest.mark.parametrize("name", CASES)
def test_equals_eager(name):
    model, shape = CASES[name]
    torch.manual_seed(0)
    x = torch.randn(shape).bfloat16()
    if "already" in name:
        x = x.to(memory_format=torch.channels_last)
    module, flows, weights = lowered(model, x)
    assert any(n in ("channels_last_conv", "linear") for root in roots(flows) for n in root)
    made = interpret(module, [array(x)], weights, {})
    with torch.no_grad():
        expected = model(x)
        exact = model.double()(x.double())
    for got, given, true in zip(made, *(t if isinstance(t, tuple) else (t,) for t in (expected, exact)), strict=True):
        true = true.numpy()
        error, eagers = (np.abs(y.astype(np.float64) - true).max() for y in (got, given.float().numpy()))
        assert error <= 2 * eagers + 1e-3 * np.abs(true).max()


def test_a_block_is_three_kernels():
    """Each convolution with what follows it; nothing is copied but the image that comes in and the result."""
    _, flows, _ = lowered(Residual(2), torch.randn(2, 64, 6, 5).bfloat16())
    assert roots(flows) == [[], ["linear"], ["channels_last_conv"], ["channels_last_conv"], []]


def test_a_pool_writes_channels_last():
    """The stem: squares of the image, the convolution, the pool with the copy of its result, the mean."""
    _, flows, _ = lowered(Stem(7, 2, 3), torch.randn(2, 3, 18, 16).bfloat16())
    assert roots(flows) == [["pad"], ["channels_last_conv"], ["max_pool"], ["linear"], ["mean"]]


def test_a_transposed_convolution_keeps_channels_last():
    """It is a linear layer, whose phases are put in place by the concatenation that the next convolution reads."""
    _, flows, _ = lowered(Levels(2), torch.randn(1, 16, 8, 6).bfloat16())
    steps = [["channels_last_conv"], ["max_pool"], ["channels_last_conv"], ["linear"], [], ["channels_last_conv"]]
    assert roots(flows)[1:-1] == steps


def test_a_resized_image_keeps_channels_last():
    _, flows, _ = lowered(Resized(), torch.randn(2, 16, 6, 7).bfloat16())
    assert roots(flows) == [[], ["channels_last_conv"], ["index", "index"], ["linear"], []]


def test_depthwise_convolutions_keep_channels_last():
    _, flows, _ = lowered(Inverted(32), torch.randn(2, 16, 6, 7).bfloat16())
    assert roots(flows) == [[], ["channels_last_conv"], ["depthwise_conv"], ["linear"], []]
    _, flows, _ = lowered(Next(), torch.randn(1, 3, 20, 16).bfloat16())
    assert roots(flows) == [["channels_last_conv"], ["depthwise_conv"], [], ["linear"], ["linear"], []]


def test_short_patches_are_read_from_the_image_that_comes_in():
    """The convolution of three channels writes its patches itself: no copy of the image is before it."""
    _, flows, _ = lowered(Stem(3, 2, 1), torch.randn(1, 3, 17, 13).bfloat16())
    assert roots(flows)[0] == ["channels_last_conv"]


def attributes(**changed):
    one = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1, "transposed": False}
    return {**one, **changed}


@pytest.mark.parametrize(
    "x, w, changed, suits",
    [
        (("bf16", (2, 64, 8, 8)), (64, 64, 3, 3), {}, True),
        (("f32", (2, 64, 8, 8)), (64, 64, 3, 3), {}, False),
        (("bf16", (2, 64, 8, 8)), (64, 32, 3, 3), {"groups": 2}, False),
        (("bf16", (2, 64, 8, 8)), (64, 1, 3, 3), {"groups": 64}, True),
        (("bf16", (2, 64, 8, 8)), (128, 1, 3, 3), {"groups": 64}, False),
        (("bf16", (2, 64, 8, 8)), (64, 1, 9, 9), {"groups": 64}, False),
        (("bf16", (2, 64, 8, 8)), (64, 12, 3, 3), {"stride": (2, 2), "transposed": True}, True),
        (("f32", (2, 64, 8, 8)), (64, 64, 2, 2), {"stride": (2, 2), "transposed": True}, False),
        (("bf16", (2, 3, 8, 8)), (3, 64, 2, 2), {"stride": (2, 2), "transposed": True}, False),
        (("bf16", (2, 64, 8, 8)), (64, 1, 2, 2), {"groups": 64, "transposed": True}, False),
        (("bf16", (2, 60, 8, 8)), (64, 60, 3, 3), {}, False),
        (("bf16", (2, 64, 8, 8)), (10, 64, 3, 3), {}, True),
        (("bf16", (2, 8, 8, 8)), (16, 8, 1, 1), {}, True),
        (("bf16", (64, 128, 34, 34)), (64, 128, 32, 32), {}, False),
        (("bf16", (2, 64, 500, 500)), (64, 64, 3, 3), {"dilation": (200, 1), "padding": (1, 1)}, False),
        (("bf16", (2, 64, 8, 8)), (64, 64, 3, 3), {"stride": (9, 1)}, False),
        (("f16", (2, 3, 32, 32)), (64, 3, 7, 7), {"stride": (2, 2)}, True),
        (("f16", (2, 3, 32, 32)), (64, 3, 7, 7), {"stride": (2, 1)}, False),
        (("f16", (2, 3, 32, 32)), (64, 3, 3, 3), {"stride": (2, 1), "dilation": (1, 2)}, True),
        (("f16", (2, 1, 32)), (16, 1, 64), {"stride": (16,), "padding": (0,), "dilation": (1,)}, True),
        (("f16", (2, 1, 32)), (16, 1, 65), {"stride": (16,), "padding": (0,), "dilation": (1,)}, False),
    ],
)
def test_which_convolutions_suit(x, w, changed, suits):
    types = TensorType(*x), TensorType(x[0], w)
    assert suits_channels_last(*types, attributes(**changed)) == suits


def test_squares_of_the_first_convolution_of_resnet():
    """7 x 7 by 2 on three channels is 4 x 4 by 1 on 16: four of them are 128 bytes."""
    found = folding(
        TensorType("bf16", (8, 3, 224, 224)),
        TensorType("bf16", (64, 3, 7, 7)),
        attributes(stride=(2, 2), padding=(3, 3)),
    )
    assert found is not None
    assert (found.step, found.channels, found.taps, found.rows, found.high) == (2, 4, (4, 4), (115, 115), (3, 3))
