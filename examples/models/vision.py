"""ConvNeXt-tiny (Liu et al. 2022) and ViT-tiny (Dosovitskiy et al. 2020) in plain torch."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Made = tuple[nn.Module, tuple[Tensor, ...]]


class ConvNeXtBlock(nn.Module):
    """Depthwise 7×7, layer norm over channels, two pointwise layers with GELU, a learned scale, a residual."""

    def __init__(self, width: int):
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.full((width,), 0.1))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.scale * self.narrow(F.gelu(self.wide(y)))
        return x + y.permute(0, 3, 1, 2)


class ChannelNorm(nn.LayerNorm):
    """Layer norm over the channels of N C H W."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


def convnext_tiny(
    size: int = 224,
    widths: tuple[int, ...] = (96, 192, 384, 768),
    depths: tuple[int, ...] = (3, 3, 9, 3),
    classes: int = 1000,
    batch: int = 1,
) -> Made:
    """ConvNeXt-tiny."""
    layers: list[nn.Module] = [nn.Conv2d(3, widths[0], 4, 4), ChannelNorm(widths[0], eps=1e-6)]
    for stage, (width, depth) in enumerate(zip(widths, depths)):
        if stage:
            layers += [ChannelNorm(widths[stage - 1], eps=1e-6), nn.Conv2d(widths[stage - 1], width, 2, 2)]
        layers += [ConvNeXtBlock(width) for _ in range(depth)]
    layers += [nn.AdaptiveAvgPool2d(1), ChannelNorm(widths[-1], eps=1e-6), nn.Flatten()]
    layers += [nn.Linear(widths[-1], classes)]
    return nn.Sequential(*layers).eval(), (torch.randn(batch, 3, size, size),)


class Block(nn.Module):
    """A pre-norm transformer encoder layer."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        b, s, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, s, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, s, d)
        x = x + self.project(y)
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    """Patches, a class token, encoder layers, a linear head on the token."""

    def __init__(self, size: int, patch: int, width: int, depth: int, heads: int, classes: int):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.token = nn.Parameter(torch.randn(1, 1, width) * 0.02)
        self.position = nn.Parameter(torch.randn(1, (size // patch) ** 2 + 1, width) * 0.02)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.position
        return self.head(self.norm(self.blocks(x))[:, 0])


def vit_base(batch: int = 1) -> Made:
    """ViT-B/16, 12 layers of 768."""
    return ViT(224, 16, 768, 12, 12, 1000).eval(), (torch.randn(batch, 3, 224, 224),)


def vit_tiny(size: int = 224, width: int = 192, depth: int = 12, classes: int = 1000, batch: int = 1) -> Made:
    """ViT-tiny with patches of 16 (of 8 for small images)."""
    patch = 16 if size >= 64 else 8
    return ViT(size, patch, width, depth, 3, classes).eval(), (torch.randn(batch, 3, size, size),)
