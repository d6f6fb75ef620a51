"""A model with buffers that it updates as a function of them, for systems that keep no state."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Stateless(nn.Module):
    """`(*args, *buffers)` to the model's outputs and the buffers' new values."""

    def __init__(self, model: nn.Module, names: Sequence[str]):
        super().__init__()
        self.model, self.names = model, tuple(names)

    def forward(self, *args: Tensor) -> tuple[Tensor, ...]:
        count = len(args) - len(self.names)
        state = {name: value.clone() for name, value in zip(self.names, args[count:])}
        y = torch.func.functional_call(self.model, state, args[:count])
        return (*(y if isinstance(y, tuple) else (y,)), *state.values())


def stateless(model: nn.Module, args: Sequence[Tensor]) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """The model and its arguments; where a call writes buffers, a `Stateless` one that is given their values."""
    before = {name: buffer._version for name, buffer in model.named_buffers()}
    model(*args)
    written = {name: b.clone() for name, b in model.named_buffers() if b._version != before[name]}
    return (Stateless(model, list(written)), (*args, *written.values())) if written else (model, tuple(args))
