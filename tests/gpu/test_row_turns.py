"""Rows that threads take in turn, simulated, against eager in float64: with totals of what they have one of (the losses of a
batch), and with weights that are shifted once for all of them.
"""

import re
import warnings

import ml_dtypes
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from mlir import ir
from support.fake_program import run_on_fake
from support.graph_kernel import graph_module
from support.simulate_gpu import simulate

from lamina.compiler.api import show_ir
from lamina.frontend.export import from_program
from lamina.passes.gpu.loops import row_plan, row_totals
from lamina.passes.pass_manager import run

PASS = "lamina-emit-gpu-loops{aligned=true}"


class Module(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x, second, third):
        return self.function(x, second, third)


def stages_of(function, *tensors):
    """The results of `function` as one kernel in the simulator, and the kernel."""
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        graph = from_program(torch.export.export(Module(function), tensors)).graph
        expected = function(*tensors)
    context = ir.Context()
    context.enable_multithreading(False)
    with context, ir.Location.unknown():
        module = graph_module(graph)
        run(module, PASS)
        wanted = [(tuple(e.shape), to_numpy(e).dtype) for e in expected]
        made, status = simulate(module, [to_numpy(t) for t in tensors], wanted)
        text = str(module)
    assert status == 0
    return [torch.from_numpy(m.astype(np.float64)) for m in made], text


def to_numpy(tensor):
    if tensor.dtype is torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def batch(rows, columns, dtype, ignored=0.2):
    generator = torch.Generator().manual_seed(rows + columns)
    x = torch.randn(rows, columns, generator=generator).to(dtype)
    target = torch.randint(0, columns, (rows,), generator=generator)
    return (
        x,
        torch.where(torch.rand(rows, generator=generator) < ignored, -100, target),
        torch.linspace(0.5, 2, columns),
    )


def check(function, x, target, weight):
    (made,), text = stages_of(function, x, target, weight)
    (expected,) = function(x.double(), target, weight.double())
    torch.testing.assert_close(made, expected, rtol=2e-5, atol=2e-5)
    return text


def cross_entropy(weighted=False, **options):
    def loss(x, target, weight):
        wide = x if x.dtype is torch.float64 else x.float()
        return (F.cross_entropy(wide, target, weight=weight if weighted else None, **options),)

    return loss


def grids(text):
    """The blocks of each stage."""
    return [int(n) for n in re.findall(r'lamina.grid = \["(\d+)"', text)]


@pytest.fixture
def few_blocks(monkeypatch):
    monkeypatch.setattr(row_plan, "LEAST_BLOCKS", 1)


# parts of a warp, a warp, a block for a row; rows that begin anywhere; a loop; numbers of rows that turns leave some of
SHAPES = [(128, 40), (130, 1024), (133, 1024), (37, 2048), (32, 2049), (45, 515), (67, 1025), (66, 33000)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_mean_of_losses_is_two_stages(shape, dtype, few_blocks):
    text = check(cross_entropy(), *batch(*shape, dtype))
    rows, last = grids(text)
    turns = 1 if shape[1] > 32768 else row_totals.TURNS  # each loop reads long rows again
    assert rows <= -(-shape[0] // turns) + 8 and last == 1


OPTIONS = [
    {"reduction": "sum"},
    {"ignore_index": 3},
    {"label_smoothing": 0.1},
    {"weighted": True},
    {"weighted": True, "label_smoothing": 0.1},
]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: ", ".join(o))
def test_every_kind_of_loss(options, few_blocks):
    x, target, weight = batch(45, 515, torch.float32, ignored=0 if "ignore_index" in options else 0.2)
    text = check(cross_entropy(**options), x, target, weight)
    assert len(grids(text)) == 2 or "label_smoothing" in options  # that is the mean of a whole tensor, too


def test_the_mean_of_no_loss_is_none(few_blocks):
    tensors = batch(40, 515, torch.float32, ignored=2)
    (made,), _ = stages_of(cross_entropy(), *tensors)
    assert made.isnan()
    (made,), _ = stages_of(cross_entropy(reduction="sum"), *tensors)
    assert made == 0


# numbers of rows that blocks of rows that begin alike leave some of; a last vector for some rows only
@pytest.mark.parametrize("shape", [(64, 515), (37, 1025), (41, 2051), (33, 1031)], ids=str)
def test_weights_are_shifted_for_several_rows(shape, few_blocks):
    generator = torch.Generator().manual_seed(1)
    x, w, v = (torch.randn(n, generator=generator).bfloat16() for n in (shape, shape[1:], shape[1:]))
    norm = lambda x, w, v: (F.layer_norm(x, x.shape[1:], w, v), x.sum(1))
    made, text = stages_of(norm, x, w + 1, v)
    expected = norm(x.double(), (w + 1).double(), v.double())
    torch.testing.assert_close(made[0], expected[0], rtol=1.6e-2, atol=1.6e-2)
    torch.testing.assert_close(made[1], expected[1], rtol=1.6e-2, atol=0.2)
    assert grids(text)[0] < shape[0] and "fshr" in text


@pytest.mark.parametrize("target", ["sm_90a", "gfx942"])
def test_losses_of_a_program(target, monkeypatch):
    """Formed from the whole graph, launched by the runtime."""
    tensors = batch(1030, 40, torch.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        graph = from_program(torch.export.export(Module(cross_entropy()), tensors)).graph
    made = show_ir(graph, "loops", target)
    assert len(grids(made)) == 2
    if target == "sm_90a":
        (mean,) = run_on_fake(graph, [to_numpy(t) for t in tensors], monkeypatch)
        (expected,) = cross_entropy()(tensors[0].double(), tensors[1], tensors[2])
        np.testing.assert_allclose(mean, expected, rtol=1e-5)
