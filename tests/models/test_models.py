"""The model zoo in small sizes: inference, training and dynamic sizes against eager, in both modes of running."""

import copy

import pytest
import torch
from support.models import SMALL

from lamina.frontend import dynamo  # noqa: F401
from lamina.frontend.stats import COUNTERS

# Ops of these models that run in eager, and why that is right: random numbers follow eager's generator.
EAGER = {"aten.native_dropout.default", "aten.bernoulli.p"}


@pytest.fixture(autouse=True, params=["interpreted", "native"])
def mode(request, monkeypatch):
    monkeypatch.setenv("LAMINA_INTERPRET", "1" if request.param == "interpreted" else "0")
    torch.manual_seed(0)
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()  # graph breaks of other tests in this process
    COUNTERS.reset()


def flat(value):
    return [value] if isinstance(value, torch.Tensor) else [t for v in value for t in flat(v)]


def close(got, expected, what=""):
    for a, b in zip(flat(got), flat(expected)):
        assert (a.shape, a.dtype, a.stride()) == (b.shape, b.dtype, b.stride()), what
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4 * max(1.0, b.abs().max().item()), msg=what or None)


def nothing_in_eager():
    found = COUNTERS.snapshot()
    assert not set(found["fallback"]) - EAGER, found["fallback"]
    assert not found["failures"] and not found["graph_breaks"]


# What the others show of the frontend and of kernels; test_aot.py and test_dynamic.py run some of these natively too.
LARGE = ("resnet50", "llama", "llama_decode", "hf_llama")


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.full) if n in LARGE else n for n in SMALL])
def test_inference(name):
    model, args = SMALL[name]()
    eager = copy.deepcopy(model)
    with torch.no_grad(), torch._dynamo.config.patch(allow_rnn=True):
        compiled = torch.compile(model, backend="lamina")
        for _ in range(2):
            close(compiled(*args), eager(*args))
    for (path, a), b in zip(model.named_buffers(), eager.buffers()):
        torch.testing.assert_close(a, b, msg=path)
    nothing_in_eager()


SLOW = [pytest.param(n, marks=pytest.mark.full) for n in ("resnet18", "convnext_tiny", "gpt2_small")]


@pytest.mark.parametrize("name", ["mlp", "vit_tiny", "dlrm", *SLOW])
def test_training_step(name):
    model, args = SMALL[name]()
    eager = copy.deepcopy(model).train()
    model.train()
    with torch._dynamo.config.patch(allow_rnn=True):
        compiled = torch.compile(model, backend="lamina")
        for module, call in ((eager, eager), (model, compiled)):
            torch.manual_seed(1)
            sum(t.square().mean() for t in flat(call(*args)) if t.requires_grad).backward()
            assert any(p.grad is not None for p in module.parameters())
    for (path, p), q in zip(model.named_parameters(), eager.parameters()):
        assert (p.grad is None) == (q.grad is None), path
        if q.grad is not None:
            close(p.grad, q.grad, path)
    for (path, a), b in zip(model.named_buffers(), eager.buffers()):
        torch.testing.assert_close(a, b, msg=path)


@pytest.mark.parametrize("name", ["mlp", "vit_tiny", "bert_small", "gpt2_small", "resnet18"])
def test_dynamic_batch(name):
    model, args = SMALL[name]()
    with torch.no_grad():
        compiled = torch.compile(model, backend="lamina")
        for batch in (2, 3, 5):
            given = [a[:1].expand(batch, *a.shape[1:]).contiguous() for a in args]
            for a in given:
                torch._dynamo.mark_dynamic(a, 0)
            close(compiled(*given), model(*given))
    nothing_in_eager()
