"""A multi-layer perceptron, and the embedding-bag recommender DLRM (Naumov et al. 2019)."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def mlp(width: int = 512, batch: int = 64) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Four linear layers with GELU and ReLU between them."""
    layers = [nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, 2 * width), nn.ReLU()]
    layers += [nn.Linear(2 * width, width), nn.Tanh(), nn.Linear(width, 10)]
    return nn.Sequential(*layers).eval(), (torch.randn(batch, width),)


class DLRM(nn.Module):
    """Dense features through an MLP, sparse ones through embedding bags, all pairs of dot products, a top MLP."""

    def __init__(self, rows: int, width: int, tables: int, dense: int):
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum") for _ in range(tables))
        self.bottom = nn.Sequential(nn.Linear(dense, 64), nn.ReLU(), nn.Linear(64, width), nn.ReLU())
        pairs = (tables + 1) * tables // 2
        self.top = nn.Sequential(nn.Linear(width + pairs, 64), nn.ReLU(), nn.Linear(64, 1), nn.Sigmoid())

    def forward(self, dense: Tensor, *indices: Tensor) -> Tensor:
        x = self.bottom(dense)
        features = torch.stack([x] + [t(i) for t, i in zip(self.tables, indices)], 1)
        dots = torch.bmm(features, features.transpose(1, 2))
        row, column = torch.tril_indices(dots.shape[1], dots.shape[2], offset=-1)
        return self.top(torch.cat([x, dots[:, row, column]], 1))


def dlrm(rows: int = 10000, width: int = 16, tables: int = 8, batch: int = 128) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """DLRM with `tables` bags of four indices."""
    indices = tuple(torch.randint(0, rows, (batch, 4)) for _ in range(tables))
    return DLRM(rows, width, tables, 13).eval(), (torch.randn(batch, 13), *indices)
