"""Lamina ahead of time: an artifact, called from numpy."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import lamina


def build(model: nn.Module, args: Sequence[Tensor], threads: int) -> Callable[[], Any]:
    os.environ["LAMINA_NUM_THREADS"] = str(threads)
    program = torch.export.export(model, tuple(args), strict=False)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.lamina"
        lamina.export(program).save(file)
        loaded = lamina.load(file).session()
    arrays = [x.numpy() for x in args]
    return lambda: loaded(*arrays)
