"""What one row of the survey is: a module, its arguments, and how it is called; makers for classes of transformers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

VOCABULARY, LENGTH, BATCH = 97, 12, 2


@dataclass
class Subject:
    """`call(module, **arguments)` runs it; with `inside` the call is a method that uses the compiled module itself."""

    module: nn.Module
    arguments: dict[str, Any]
    call: Callable[..., Any] = field(default=lambda module, **arguments: module(**arguments))
    inside: bool = False

    def to(self, device: str) -> Subject:
        """The same on `device`."""
        if generation := getattr(self.module, "generation_config", None):
            generation.disable_compile = True  # by itself, for a static cache on a GPU
        move = partial(tree_map_only, Tensor, lambda t: t.to(device))
        return Subject(self.module.to(device), move(self.arguments), self.call, self.inside)


Maker = Callable[[], Subject]


def tokens(length: int = LENGTH) -> Tensor:
    """Random token numbers, none of them a padding or end token."""
    return torch.randint(5, VOCABULARY, (BATCH, length))


def padded() -> Tensor:
    """An attention mask whose second row has a quarter of padding."""
    mask = torch.ones(BATCH, LENGTH, dtype=torch.int64)
    mask[1, LENGTH - LENGTH // 4 :] = 0
    return mask


def library(model: str, config: str, arguments: Callable[[], dict[str, Any]], **fields: Any) -> Maker:
    """The maker of transformers' class `model` from its `config` class with `fields`."""
    return partial(_library, model, config, arguments, fields)


def _library(model: str, config: str, arguments: Callable[[], dict[str, Any]], fields: dict[str, Any]) -> Subject:
    import transformers

    module = getattr(transformers, model)(getattr(transformers, config)(**fields)).eval()
    for part in module.modules():  # the library's own weights are so small that without training they return zeros
        if isinstance(part, nn.Conv2d):
            nn.init.kaiming_normal_(part.weight)
        elif isinstance(part, nn.BatchNorm2d):
            nn.init.ones_(part.weight)
    return Subject(module, arguments())
