"""Lamina as torch.compile's backend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn


def build(model: nn.Module, args: Sequence[Tensor], threads: int) -> Callable[[], Any]:
    torch.set_num_threads(threads)
    torch._dynamo.config.allow_rnn = True
    compiled = torch.compile(model, backend="lamina")
    return lambda: compiled(*args)
