"""A two-layer LSTM over embedded tokens."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class LSTM(nn.Module):
    """Embedding, two LSTM layers, a linear head on every step."""

    def __init__(self, width: int, vocabulary: int):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, width, num_layers=2, batch_first=True)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.lstm(self.embedding(tokens))[0])


def lstm(width: int = 128, steps: int = 32, batch: int = 8) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """The LSTM on `steps` random tokens."""
    return LSTM(width, 100).eval(), (torch.randint(0, 100, (batch, steps)),)
