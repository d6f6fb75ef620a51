"""A Llama-style decoder in plain torch: RMSNorm, rotary positions, grouped-query attention, SwiGLU, a KV cache."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Made = tuple[nn.Module, tuple[Tensor, ...]]


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate pairs (first half, second half) of the last dim by the position's angles."""
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class Layer(nn.Module):
    """One decoder layer; `capacity` slots of keys and values are kept in buffers."""

    def __init__(self, width: int, heads: int, groups: int, capacity: int):
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.norm1, self.norm2 = nn.RMSNorm(width, eps=1e-5), nn.RMSNorm(width, eps=1e-5)
        self.q = nn.Linear(width, width, bias=False)
        self.kv = nn.Linear(width, 2 * groups * self.size, bias=False)
        self.o = nn.Linear(width, width, bias=False)
        wide = (8 * width // 3 + 15) // 16 * 16
        self.gate, self.up = nn.Linear(width, wide, bias=False), nn.Linear(width, wide, bias=False)
        self.down = nn.Linear(wide, width, bias=False)
        self.register_buffer("keys", torch.zeros(1, groups, capacity, self.size))
        self.register_buffer("values", torch.zeros(1, groups, capacity, self.size))

    def forward(self, x: Tensor, positions: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None) -> Tensor:
        b, s, d = x.shape
        y = self.norm1(x)
        q = self.q(y).view(b, s, self.heads, self.size).transpose(1, 2)
        k, v = self.kv(y).view(b, s, 2, self.groups, self.size).permute(2, 0, 3, 1, 4)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        self.keys[:, :, positions] = k
        self.values[:, :, positions] = v
        if mask is None:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        else:
            y = F.scaled_dot_product_attention(q, self.keys, self.values, attn_mask=mask, enable_gqa=True)
        x = x + self.o(y.transpose(1, 2).reshape(b, s, d))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    """Token embedding, layers, logits; the cache in the layers' buffers is updated in place.

    Tokens attend to the cache up to their positions; of a whole prompt (`prompt`), which begins at 0, to each other.
    """

    def __init__(self, layers: int, width: int, heads: int, groups: int, vocabulary: int, capacity: int, prompt: bool):
        super().__init__()
        self.capacity, self.prompt = capacity, prompt
        self.embedding = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(Layer(width, heads, groups, capacity) for _ in range(layers))
        self.norm = nn.RMSNorm(width, eps=1e-5)
        self.head = nn.Linear(width, vocabulary, bias=False)
        size = width // heads
        self.register_buffer("frequency", 10000.0 ** (-torch.arange(0, size, 2).float() / size))

    def forward(self, tokens: Tensor, positions: Tensor) -> Tensor:
        angles = positions[:, None].float() * self.frequency
        x = self.embedding(tokens)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        mask = None if self.prompt else torch.arange(self.capacity, device=x.device) <= positions[:, None]
        for layer in self.layers:
            x = layer(x, positions, cos, sin, mask)
        return self.head(self.norm(x))


def _model(layers: int, width: int, vocabulary: int, capacity: int, prompt: bool = False) -> nn.Module:
    heads = max(8, width // 128) if width >= 256 else 4
    return Llama(layers, width, heads, heads // 2, vocabulary, capacity, prompt).eval()


def prefill(layers: int = 4, width: int = 512, length: int = 64, vocabulary: int = 32000, prompt: bool = False) -> Made:
    """All tokens of a prompt at once."""
    model = _model(layers, width, vocabulary, 2 * length, prompt)
    return model, (torch.randint(0, vocabulary, (1, length)), torch.arange(length))


def next_calls(args: tuple[Tensor, ...], count: int) -> list[tuple[Tensor, ...]]:
    """The arguments of `count` successive decode steps that begin with `args`; each is given another token."""
    token, position = args
    return [((token + 7 * i) % 100, position + i) for i in range(count)]


def decode(layers: int = 4, width: int = 512, length: int = 64, vocabulary: int = 32000) -> Made:
    """One token after `length` others, whose keys and values are in the cache."""
    model = _model(layers, width, vocabulary, 2 * length)
    with torch.no_grad():
        model(torch.randint(0, vocabulary, (1, length)), torch.arange(length))
    return model, (torch.randint(0, vocabulary, (1, 1)), torch.tensor([length]))
