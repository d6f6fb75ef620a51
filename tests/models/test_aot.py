"""The model zoo as .pt2 files, through the command line, to artifacts that run on arrays in a process without torch."""

import pytest
import torch
from support.models import SMALL, Runner, compare, compile_model, exact_calls, flat, next_calls

FAST = ("mlp", "resnet18", "bert_small", "hf_llama_decode")


def run(artifact, calls, folder):
    with Runner(artifact, calls, folder) as runner:
        pass
    assert not runner.facts["torch_imported"]
    return runner.results()


@pytest.mark.parametrize("name", [n if n in FAST else pytest.param(n, marks=pytest.mark.full) for n in SMALL])
def test_artifact(name, tmp_path):
    model, args = SMALL[name]()
    artifact = compile_model(model, args, tmp_path)
    calls = next_calls(args, 4) if name.endswith("_decode") else [args]
    with torch.no_grad():
        exact = exact_calls(model, calls)
        eager = [flat(model(*a)) for a in calls]
    assert not compare(run(artifact, calls, tmp_path), eager, exact).faults
