"""Language models with symbolic batch and sequence: compiled once, right at every size, ahead of time and under torch.compile."""

import copy

import pytest
import torch
from support.models import SMALL, ZOO, compare, exact_calls, flat
from torch.export import Dim

import lamina
from lamina.frontend import dynamo  # noqa: F401
from lamina.frontend.stats import COUNTERS

SIZES = ((2, 8), (1, 7), (3, 5), (2, 33), (5, 16))
LARGE_SIZES = ((2, 64), (1, 128), (3, 37), (4, 128), (2, 200))  # for models of their real size


def arguments(name, batch, length):
    tokens = torch.randint(1, 100, (batch, length))
    if name.startswith("bert"):
        mask = torch.ones(batch, length, dtype=torch.int64)
        mask[:, length - length // 4 :] = 0
        return tokens, mask
    if name == "t5_small":
        return tokens, torch.randint(1, 100, (batch, length // 2 + 1))
    if name == "llama":  # one batch, and a cache of 14 places
        return tokens[:1, :14], torch.arange(min(length, 14))
    return (tokens,)


def dynamic_shapes(name, longest=64):
    batch, length = Dim("batch", min=1, max=64), Dim("length", min=2, max=longest)
    if name == "llama":
        length = Dim("length", min=2, max=14)
        return {1: length}, {0: length}
    mask = {0: batch, 1: length}
    second = {"bert_small": mask, "bert_base": mask, "t5_small": {0: batch, 1: Dim("answer", min=2, max=64)}}
    return (tuple(filter(None, ({0: batch, 1: length}, second.get(name)))),)


def right_at_all_sizes(name, model, compiled, sizes=SIZES):
    for batch, length in sizes:
        args = arguments(name, batch, length)
        with torch.no_grad():
            (exact,) = exact_calls(model, [args])
            eager = flat(copy.deepcopy(model)(*args))
            assert not compare(compiled(*args), eager, exact).faults, (batch, length)


@pytest.mark.parametrize(
    "name", ["bert_small", "gpt2_small", *(pytest.param(n, marks=pytest.mark.full) for n in ("t5_small", "llama"))]
)
def test_artifact(name, tmp_path):
    model, _ = SMALL[name]()
    with torch.no_grad():
        args = arguments(name, *SIZES[0])
        program = torch.export.export(model, args, dynamic_shapes=dynamic_shapes(name), strict=False)
    loaded = lamina.load(lamina.export(program).save(tmp_path / "model.lamina"))
    right_at_all_sizes(name, model, lambda *args: loaded(*(a.numpy() for a in args)))


@pytest.mark.full
@pytest.mark.parametrize("name", ["bert_base", "gpt2_small"])
def test_artifact_of_real_size(name, tmp_path):
    model, _ = ZOO[name]()
    with torch.no_grad():
        shapes = dynamic_shapes(name, longest=512)
        program = torch.export.export(model, arguments(name, *LARGE_SIZES[0]), dynamic_shapes=shapes, strict=False)
    loaded = lamina.load(lamina.export(program).save(tmp_path / "model.lamina"))
    right_at_all_sizes(name, model, lambda *args: loaded(*(a.numpy() for a in args)), LARGE_SIZES)


MARKED = [pytest.param(n, None, marks=pytest.mark.full) for n in ("bert_small", "gpt2_small", "t5_small")]


@pytest.mark.parametrize("name, dynamic", [("bert_small", True), ("gpt2_small", True), *MARKED])
def test_torch_compile(name, dynamic):
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    COUNTERS.reset()
    model, _ = SMALL[name]()
    compiled = torch.compile(copy.deepcopy(model), backend="lamina", dynamic=dynamic)

    def call(*args):
        for a in args if dynamic is None else ():
            for dim in range(a.dim()):
                if a.shape[dim] > 1:
                    torch._dynamo.mark_dynamic(a, dim)
        return compiled(*args)

    right_at_all_sizes(name, model, call)
    found = COUNTERS.snapshot()
    assert found["graphs"] == 2  # one for every size, and Dynamo's own of batch 1, which it always specialises
    assert not found["fallback"] and not found["failures"] and not found["graph_breaks"]
