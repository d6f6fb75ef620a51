"""Products that are read in equal parts of their columns, and kernels that differ in where they begin to read."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

import lamina

JOINED, STEP = "packed_linear_sigmoid", "packed_linear_sigmoid_tanh"


class Gates(nn.Module):
    """`function` of `x` and equal parts of a linear layer's columns."""

    def __init__(self, inputs, part, parts, function, bias=True):
        super().__init__()
        self.linear, self.parts, self.function = nn.Linear(inputs, parts * part, bias=bias), parts, function

    def forward(self, x):
        return self.function(x, *self.linear(x).chunk(self.parts, dim=-1))


class Steps(nn.Module):
    """The results of an LSTM or a GRU for all steps."""

    def __init__(self, kind, width):
        super().__init__()
        self.steps = kind(width, width)

    def forward(self, x):
        return self.steps(x)[0]


def gated(x, a, b):
    return a * torch.sigmoid(b)


def launched(path, model, *inputs, dynamic=None, target="native"):
    """The plan of a model's program; its values are compared with eager's in float64."""
    exported = torch.export.export(model.eval(), inputs[0], strict=False, dynamic_shapes=dynamic)
    artifact = lamina.export(exported, targets=target)
    (program,) = artifact.programs.values()
    assert not {k: f["reason"] for k, f in program.manifest["kernels"].items() if f["plain"]}
    if target == "native":
        artifact.save(path / "model.lamina")
        run, exact = lamina.load(path / "model.lamina"), copy.deepcopy(model).double()
        for args in inputs:
            got, expected = run(*(x.numpy() for x in args)), exact(*(x.double() for x in args))
            pairs = zip(got, expected, strict=True) if isinstance(expected, tuple) else [(got, expected)]
            for made, right in pairs:
                tolerance = 1e-12 if made.dtype == np.float64 else 2e-5
                np.testing.assert_allclose(made, right.detach().numpy(), rtol=tolerance, atol=tolerance)
    return program.manifest["plan"]["launches"]


def labels(launches):
    return [launch["label"] for launch in launches]


@pytest.mark.parametrize("rows", [(1,), (8,), (13,), (2, 3), (150,)])
@pytest.mark.parametrize("inputs", [20, 1100])
def test_halves(tmp_path, rows, inputs):
    x = torch.randn(*rows, inputs)
    assert labels(launched(tmp_path, Gates(inputs, 192, 2, gated), (x,))) == [JOINED]
    assert labels(launched(tmp_path, Gates(inputs, 192, 2, gated, bias=False), (x,))) == [JOINED]


def test_any_number_of_rows(tmp_path):
    batch = torch.export.Dim("batch", max=1000)
    inputs = [(torch.randn(n, 40),) for n in (5, 1, 100)]
    launches = launched(tmp_path, Gates(40, 96, 2, gated), *inputs, dynamic=({0: batch},))
    assert labels(launches) == [JOINED]


def test_doubles(tmp_path):
    assert labels(launched(tmp_path, Gates(40, 64, 2, gated).double(), (torch.randn(7, 40).double(),))) == [JOINED]


def test_several_results_of_several_parts_and_what_is_beside_them(tmp_path):
    def function(x, a, b, c):
        y = torch.sigmoid(a + x) * b
        return y, y.exp() * c, torch.sigmoid(x[:, :1] * b)

    assert labels(launched(tmp_path, Gates(64, 64, 3, function), (torch.randn(9, 64),))) == [f"{JOINED}_exp"]


def test_scalars_in_the_epilogue(tmp_path):
    """A read at a computed index has no vector form."""

    def function(x, a, b):
        return a * torch.sigmoid(b) + torch.arange(32)[torch.arange(31, -1, -1)] * 0.1

    launched(tmp_path, Gates(100, 32, 2, function), (torch.randn(7, 100),))


@pytest.mark.parametrize(
    "part, parts, function",
    [
        (20, 2, gated),  # not whole panels
        (64, 2, lambda x, a, b: (gated(x, a, b), b)),  # returned
        (64, 2, lambda x, a, b: gated(x, a, b.flip(-1))),  # in another order
        (64, 2, lambda x, a, b: (a * torch.sigmoid(b)).sum(-1)),  # no element for each column
        (64, 2, lambda x, a, b: gated(x, a[..., 1:], b[..., :-1])),  # no parts
        (64, 9, lambda x, *parts: torch.sigmoid(sum(parts))),  # more than tiles hold
    ],
)
def test_what_is_stored(tmp_path, part, parts, function):
    launches = labels(launched(tmp_path, Gates(200, part, parts, function), (torch.randn(7, 200),)))
    assert "packed_linear" in launches and len(launches) >= 2


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
@pytest.mark.parametrize("target", ["native", "x86-64-v4", "aarch64", "riscv64"])
def test_steps_are_one_kernel_of_which_there_is_one(tmp_path, kind, target):
    torch.manual_seed(0)
    launches = launched(tmp_path, Steps(kind, 64), (torch.randn(6, 3, 64),), target=target)
    steps = [launch for launch in launches if launch["label"] == STEP]
    assert len({launch["kernel"] for launch in steps}) == 1
    # what starts from zeros is computed ahead of time, and the state of the last step where all are put together
    assert [launch["dims"] for launch in steps] == [[1], [2], [3], [4]]
