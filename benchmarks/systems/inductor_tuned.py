"""Inductor at its best: weights frozen (packed for oneDNN and MKL), its own products tried against theirs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn


def build(model: nn.Module, args: Sequence[Tensor], threads: int) -> Callable[[], Any]:
    import torch._inductor.config as config

    torch.set_num_threads(threads)
    torch._dynamo.config.allow_rnn = True
    config.freezing = True
    compiled = torch.compile(model, mode="max-autotune")
    return lambda: compiled(*args)
