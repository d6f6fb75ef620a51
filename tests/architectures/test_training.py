"""Gradients of the architectures' parameters under torch.compile, against eager and float64."""

import copy
from typing import Any

import pytest
import torch

pytest.importorskip("transformers", reason="the architectures are built from its configs")

from support.models import doubled

from architectures import WIDER
from architectures.generation import GENERATION
from architectures.newer import NEWER
from architectures.survey import precise
from architectures.test_architectures import FAST
from lamina.frontend.stats import COUNTERS

# Experts' weights get their gradients from transformers' own op; complex numbers at the edge of a graph, and random
# ones, are eager's.
EAGER = {
    "aten._conj.default",
    "aten._fft_c2c.default",
    "aten.randint.low",
    "aten.unsqueeze.default",
    "aten.view_as_complex.default",
    "aten.view_as_real.default",
    "transformers.grouped_mm_fallback_backward.default",
}
UNTRAINED = {"longformer, windows"}  # eager's own gradients are NaN
# The families of NEWER go forward only: what Qwen3.5's decays learn, by differences that cancel, is six times as far as eager's.
NAMES = [n for n in WIDER if n not in {**GENERATION, **NEWER} and n not in UNTRAINED]


def without_dropout(module: torch.nn.Module) -> torch.nn.Module:
    """`module` in training mode; float64 would not draw dropout's random numbers alike."""
    for part in module.train().modules():
        for owner in (part, getattr(part, "config", None)):
            for name, value in list(vars(owner).items()) if owner is not None else []:
                dropped = "drop" in name or name.startswith("mask_") or (name == "p" and "Drop" in type(part).__name__)
                if dropped and isinstance(value, float):
                    setattr(owner, name, 0.0)
    return module


def gradients(subject: Any, module: torch.nn.Module, call: Any) -> dict[str, torch.Tensor]:
    """By parameter, of a random weighting of every output: of a plain sum that of a final normalisation would vanish."""
    wide = next(module.parameters()).dtype == torch.float64
    outputs = subject.call(call, **{k: doubled(v) if wide else v for k, v in subject.arguments.items()})
    draw = torch.Generator().manual_seed(7)
    terms = [t.square() * torch.randn(t.shape, generator=draw) for t in tensors(outputs) if t.requires_grad]
    sum(t.mean() for t in terms).backward()  # type: ignore[union-attr]
    return {name: p.grad.double() for name, p in module.named_parameters() if p.grad is not None}


def tensors(value: Any) -> list[torch.Tensor]:
    value = list(value.values()) if isinstance(value, dict) else value
    if isinstance(value, (tuple, list)):
        return [t for v in value for t in tensors(v)]
    return [value] if isinstance(value, torch.Tensor) else []


@pytest.mark.parametrize("name", [n if n in FAST else pytest.param(n, marks=pytest.mark.full) for n in NAMES])
def test_gradients(name):
    torch.manual_seed(0)
    torch._dynamo.reset()
    COUNTERS.reset()
    try:
        subject = WIDER[name]()
    except AttributeError as error:
        pytest.skip(str(error))
    model = without_dropout(subject.module)
    eager, exact, ours = copy.deepcopy(model), precise(model), copy.deepcopy(model)
    with torch._dynamo.config.patch(allow_rnn=True):
        got = gradients(subject, ours, torch.compile(ours, backend="lamina"))
        truth, theirs = gradients(subject, exact, exact), gradients(subject, eager, eager)
    found = COUNTERS.snapshot()
    assert not found["failures"] and found["fallback"].keys() <= EAGER
    assert got.keys() == truth.keys()
    largest = max(g.abs().max() for g in truth.values())

    def error(of: dict[str, torch.Tensor], parameter: str) -> float:
        """Relative to the parameter's largest; what is a millionth of the model's is rounding."""
        scale = max(truth[parameter].abs().max(), 1e-6 * largest)
        return ((of[parameter] - truth[parameter]).abs().max() / scale).item()

    allowed = 3 * max(error(theirs, p) for p in truth) + 1e-5
    assert not {p: e for p in truth if not (e := error(got, p)) <= allowed}
