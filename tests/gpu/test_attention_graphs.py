"""CUDA's attention ops in graphs, captured with fake CUDA tensors: their values against the composite's."""

import ml_dtypes
import numpy as np
import pytest
import torch
from support.fake_program import run_on_fake
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from lamina.compiler.api import show_ir
from lamina.dialects import interpret
from lamina.dialects.record import Graph, TensorType
from lamina.frontend.aten.registry import Unsupported
from lamina.frontend.calls import cuda_launcher
from lamina.frontend.convert import convert
from lamina.frontend.partition import classify

aten = torch.ops.aten
S = 37


def efficient(q, k, v, mask):
    return aten._scaled_dot_product_efficient_attention(q, k, v, mask, True, scale=0.2)[:2]


def efficient_without_sums(q, k, v, mask):
    return aten._scaled_dot_product_efficient_attention(q, k, v, None, False, is_causal=True)[:1]


def flash(q, k, v, mask):
    return aten._scaled_dot_product_flash_attention(q, k, v, is_causal=True)[:2]


def cudnn(q, k, v, mask):
    return aten._scaled_dot_product_cudnn_attention(q, k, v, None, False)[:1]


@pytest.mark.parametrize("function", [efficient, efficient_without_sums, flash, cudnn])
def test_values(function):
    dtype = torch.float32 if function in (efficient, efficient_without_sums) else torch.bfloat16
    shapes = [(2, 3, S, 16)] * 3 + [(2, 3, S, S)]
    with FakeTensorMode():
        given = [torch.empty(s, dtype=dtype, device="cuda") for s in shapes]
        gm = make_fx(function)(*given)
    gm.graph.eliminate_dead_code()
    nodes = [n for n in gm.graph.nodes if n.op == "call_function"]
    results = list(next(n for n in gm.graph.nodes if n.op == "output").args[0])
    part = convert(nodes, results, [], set())
    torch.manual_seed(0)
    q, k, v, mask = (torch.randn(s).to(dtype) for s in shapes)
    named = dict(zip("qkvm", (q, k, v, mask)))
    arrays = [named[n.name[0]] for n in part.inputs]
    buffers = interpret.run(part.graph, [_numpy(a) for a in arrays])  # in the order of eager's memory
    made = [
        torch.as_strided(torch.tensor(b.astype(np.float64).ravel()), o.size, o.stride)
        for b, o in zip(buffers, part.outputs)
    ]
    causal = function in (efficient_without_sums, flash)
    scale = 0.2 if function is efficient else 0.25
    scores = q.double() @ k.double().mT * scale + (mask.double() if function is efficient else 0)
    if causal:
        scores = scores.masked_fill(torch.ones(S, S).triu(1).bool(), -torch.inf)
    tolerance = 1e-5 if dtype is torch.float32 else 2e-2
    np.testing.assert_allclose(made[0], scores.softmax(-1) @ v.double(), atol=tolerance)
    if len(results) > 1:
        sums = made[1]
        assert sums.shape == (results[1].meta["val"].shape)
        np.testing.assert_allclose(sums[..., :S], scores.logsumexp(-1), atol=tolerance)


def test_a_mask_that_torch_made_of_bools_is_added(monkeypatch):
    """As cuDNN's: where all keys are masked, which are all of the second sample, their scores count as they are."""
    shape = (2, 2, 40, 16)
    graph = Graph()
    q, k, v = (graph.add_input(n, TensorType("bf16", shape)) for n in "qkv")
    keep = graph.add("expand", graph.add_input("keep", TensorType("bool", (2, 1, 1, 40))), shape=(2, 1, 40, 40))
    zero, least = (graph.add("full", shape=(), value=x, dtype="bf16") for x in (0.0, -65504.0))
    mask = graph.add("expand", graph.add("where", keep, zero, least), shape=(2, 2, 40, 40))
    for result in graph.add("attention", q, k, v, mask, causal=False, scale=0.25, gqa=1):
        graph.add_output(result)
    assert "tensor<2x1x1x40xbf16>) -> (tensor<2x2x40x16xbf16>" in show_ir(graph, "kernels", "sm_80")
    torch.manual_seed(0)
    given = [torch.randn(shape).bfloat16() for _ in "qkv"]
    kept = torch.stack([torch.rand(40) < 0.5, torch.zeros(40).bool()]).reshape(2, 1, 1, 40)
    out, lse = run_on_fake(graph, [*map(_numpy, given), kept.numpy()], monkeypatch, "sm_80")
    q, k, v = (t.double() for t in given)
    scores = q @ k.mT * 0.25 + torch.where(kept, 0.0, -65536.0)  # -65504 in bf16
    np.testing.assert_allclose(lse, scores.logsumexp(-1), rtol=1e-6, atol=1e-5)
    shifted = torch.from_numpy(np.float32(scores))  # what is left of a score beside -65536
    np.testing.assert_allclose(out.astype(np.float64), shifted.double().softmax(-1) @ v, atol=2e-2)


def test_a_diagonal_that_ends_in_the_last_corner_is_left_to_eager():
    """Flash attention's own op aligns the diagonal there; with as many queries as keys it is the same."""
    with FakeTensorMode():
        q, k = (torch.empty(1, 2, n, 16, dtype=torch.bfloat16, device="cuda") for n in (3, 5))
        gm = make_fx(lambda q, k: aten._scaled_dot_product_flash_attention(q, k, k, is_causal=True)[0])(q, k)
    gm.graph.eliminate_dead_code()
    nodes = [n for n in gm.graph.nodes if n.op == "call_function"]
    with pytest.raises(Unsupported, match="last corner"):
        convert(nodes, [nodes[-1]], [], set())


@pytest.mark.parametrize("row", [64, 3 * 4 * 64])
def test_inputs_with_gaps_are_torchs(monkeypatch, row):
    """Slices of one projection, given as inputs, would be copied first; slices that the graph makes are read in place."""
    monkeypatch.setattr(cuda_launcher, "target_for", lambda index: "sm_90a")
    strides = (4 * 64 * row, 64 * row, row, 1) if row == 64 else (64 * row, 64, row, 1)
    with FakeTensorMode():
        given = [torch.empty_strided((2, 4, 64, 64), strides, dtype=torch.bfloat16, device="cuda") for _ in range(3)]
        gm = make_fx(lambda q, k, v: aten._scaled_dot_product_flash_attention(q, k, v)[0])(*given)
    gm.graph.eliminate_dead_code()
    reasons = [r for r in classify(gm).values() if r]
    assert reasons == ([] if row == 64 else ["attention of inputs with gaps, which would be copied"])


def _numpy(t):
    return t.float().numpy().astype(ml_dtypes.bfloat16) if t.dtype is torch.bfloat16 else t.numpy()
