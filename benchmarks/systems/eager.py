"""PyTorch itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn


def build(model: nn.Module, args: Sequence[Tensor], threads: int) -> Callable[[], Any]:
    torch.set_num_threads(threads)
    return lambda: model(*args)
