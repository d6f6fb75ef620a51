"""Cross-entropy reads its logits and writes a number for each row: no log-probabilities, no converted logits."""

import pytest
import torch
import torch.nn.functional as F

from lamina.compiler.api import show_ir
from lamina.frontend.calls import launcher
from lamina.frontend.export import from_program


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("weighted", [False, True])
def test_no_log_probabilities_are_written(dtype, weighted, monkeypatch):
    logits, target = torch.randn(64, 200).to(dtype), torch.randint(0, 200, (64,))
    target[3] = -100
    weight = torch.rand(200) if weighted else None
    programs = []
    compiled = launcher.compile_graph
    monkeypatch.setattr(launcher, "compile_graph", lambda *a: programs.append(compiled(*a)) or programs[-1])

    def loss(x, t):
        return F.cross_entropy(x.float(), t, weight)

    torch._dynamo.reset()
    with torch.no_grad():
        made = torch.compile(loss, backend="lamina")(logits, target)
    torch.testing.assert_close(made, loss(logits, target))
    assert sum(b["bytes"] for p in programs for b in p.manifest["plan"]["arena"]) < 64 * 200


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("reduction", ["none", "mean"])
@pytest.mark.parametrize("widened", [False, True], ids=["rounded", "in f32"])
def test_log_probabilities_of_16_bits_round_as_if_they_were_written(dtype, reduction, widened, monkeypatch):
    logits, target = (4 * torch.randn(512, 300)).to(dtype), torch.randint(0, 300, (512,))
    target[3] = -100
    programs = []
    compiled = launcher.compile_graph
    monkeypatch.setattr(launcher, "compile_graph", lambda *a: programs.append(compiled(*a)) or programs[-1])

    def loss(x, t):
        log_p = F.log_softmax(x, -1, dtype=torch.float32 if widened else None)
        return F.nll_loss(log_p, t, reduction=reduction)

    torch._dynamo.reset()
    with torch.no_grad():
        made = torch.compile(loss, backend="lamina")(logits, target)
        expected = loss(logits, target)
        whole = torch.compile(F.cross_entropy, backend="lamina")(logits, target, reduction=reduction)
    assert made.dtype == expected.dtype
    if reduction == "none" and not widened:
        exact = -F.log_softmax(logits.double(), -1).to(dtype)[torch.arange(512), target.clamp(min=0)]
        exact[3] = 0
        assert (made != exact).float().mean() < 0.01  # a sum of exponentials that is off by an ulp of f32
        assert torch.equal(whole, made)
        return  # eager's own sums on CPUs are coarser
    torch.testing.assert_close(made, expected)
    assert sum(b["bytes"] for p in programs for b in p.manifest["plan"]["arena"]) < 512 * 300


def test_ahead_of_time_a_number_for_each_row_is_written():
    class Loss(torch.nn.Module):
        def forward(self, x, t):
            return F.cross_entropy(x.float(), t)

    program = torch.export.export(Loss(), (torch.randn(64, 200).bfloat16(), torch.zeros(64, dtype=torch.int64)))
    launches = [
        line for line in show_ir(from_program(program).graph, "kernels").splitlines() if "lamina.launch" in line
    ]
    assert [line.rsplit("->")[-1].strip() for line in launches] == ["tensor<64xf32>", "tensor<f32>"]


def test_with_gradients_the_log_probabilities_stay():
    logits, target = torch.randn(16, 50, requires_grad=True), torch.randint(0, 50, (16,))
    torch._dynamo.reset()
    (made,) = torch.autograd.grad(torch.compile(F.cross_entropy, backend="lamina")(logits, target), logits)
    (expected,) = torch.autograd.grad(F.cross_entropy(logits, target), logits)
    torch.testing.assert_close(made, expected)


@pytest.mark.parametrize("offset", [-3.4e38, -1e6, 0.0, 3e4, 1e9, 3e38])
def test_what_all_logits_have_in_common_costs_no_accuracy(offset):
    """`log(sum) + max` would be rounded as coarsely as `max` is, and a class that has the maximum have no loss."""
    logits, target = torch.randn(8, 300) + offset, torch.arange(8)
    torch._dynamo.reset()
    made = torch.compile(F.cross_entropy, backend="lamina")(logits, target)
    torch.testing.assert_close(made, F.cross_entropy(logits.double(), target).float())
