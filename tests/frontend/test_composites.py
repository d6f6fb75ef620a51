"""Composites in their parts, as programs spell them: recognised, and equal to eager where rows are masked or overflow."""

import math

import pytest
import torch
from torch.nn import functional as F

from lamina.compiler.api import show_ir
from lamina.frontend.export import from_program

INF = math.inf


def gelu_tanh(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * torch.pow(x, 3))))


def softmax(x):
    e = torch.exp(x - x.max(1, keepdim=True).values)
    return e / e.sum(1, keepdim=True)


def layer_norm(x):
    centred = x - x.mean(-1, keepdim=True)
    return centred * torch.rsqrt(x.var(-1, keepdim=True, correction=0) + 1e-5)


ROWS = {
    "gelu": (lambda x: x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0))), "gelu"),
    "gelu_tanh": (gelu_tanh, "gelu"),
    "silu": (lambda x: x / (1 + torch.exp(-x)), "silu"),
    "softmax": (softmax, "softmax"),
    "layer_norm": (layer_norm, "layer_norm"),
}


def recognized(f, *args):
    """The ops of the kernels of `f`, after comparing its values with eager's."""
    compiled = torch.compile(f, backend="lamina", fullgraph=True)
    with torch.no_grad():
        torch.testing.assert_close(compiled(*args), f(*args), rtol=2e-5, atol=2e-6, equal_nan=True)

    class Module(torch.nn.Module):
        def forward(self, *inner):
            return f(*inner)

    return show_ir(from_program(torch.export.export(Module(), args)).graph, "kernels")


@pytest.mark.parametrize("name", ROWS)
def test_rows_and_activations(name):
    f, op = ROWS[name]
    special = torch.tensor([[0.0, -0.0, INF, -INF], [math.nan, 1e30, -1e30, -8.0], [-90.0, 90.0, 1e-40, -1e-6]])
    assert f'"lamina.{op}"' in recognized(f, torch.cat([special, torch.randn(5, 4)]))


def attention(mask):
    """Attention of 2 sequences, 4 heads, 5 queries and keys; `mask(scores)` is applied to the scaled scores."""

    def run(q, k, v, m):
        scores = mask(q @ k.transpose(-2, -1) / 4, m)
        return torch.softmax(scores, -1) @ v

    return run


def causal(scores, _):
    rows, columns = scores.shape[-2:]
    return scores.masked_fill(torch.ones(rows, columns).triu(1).bool(), -INF)


def of_positions(scores, _):
    """As transformers makes it: sequences may be packed, so that positions are counted and compared."""
    position = torch.ones(scores.shape[-1], dtype=torch.int64).cumsum(0) - 1
    later = position[None, :] > position[:, None]
    return scores + torch.where(later, torch.finfo(torch.float32).min, 0.0)


MASKS = {
    "none": lambda scores, m: scores,
    "causal": causal,
    "positions": of_positions,
    "kept": lambda scores, m: scores.masked_fill(~m, -INF),
    "added": lambda scores, m: scores + torch.zeros(m.shape).masked_fill(~m, -INF),
    "smallest": lambda scores, m: torch.where(m, scores, torch.finfo(torch.float32).min),
    "both": lambda scores, m: causal(scores, m).masked_fill(~m, -INF),
}


@pytest.mark.parametrize("name", MASKS)
def test_masked_attention(name):
    q, k, v = (torch.randn(2, 4, 5, 16) for _ in range(3))
    m = torch.tensor([[True, True, False, True, False], [False] * 5]).view(2, 1, 1, 5)  # nothing of the second sequence
    text = recognized(attention(MASKS[name]), q, k, v, m)
    assert '"lamina.attention"' in text and ("causal = true" in text) == (name in ("causal", "positions"))


def test_heads_that_share_keys():
    def f(q, k, v):
        k, v = (t[:, :, None].expand(1, 2, 3, 7, 16).reshape(1, 6, 7, 16) for t in (k, v))
        return F.softmax((q * 0.25) @ k.transpose(2, 3), -1) @ v

    k, v = torch.randn(1, 2, 7, 16), torch.randn(1, 2, 7, 16)
    assert "gqa = 3" in recognized(f, torch.randn(1, 6, 7, 16), k, v)


def test_decomposed_attention_of_any_length():
    """Core ATen's form of scaled_dot_product_attention: half of the scale on either side, merged heads, a safe softmax."""

    class Attention(torch.nn.Module):
        def forward(self, q, k, v):
            return F.scaled_dot_product_attention(q, k, v)

    args = tuple(torch.randn(2, 4, 6, 16) for _ in range(3))
    length = torch.export.Dim("length", min=2, max=64)
    program = torch.export.export(Attention(), args, dynamic_shapes=[{2: length}] * 3).run_decompositions()
    assert '"lamina.attention"' in show_ir(from_program(program).graph, "kernels")
