"""numpy and torch, imported at first use: `from ..lazy import np, pt`.

Op classes are read in the user's process before anything is computed, so a family module must not import numpy or torch
when it is loaded; its `reference` and `torch` parts use these stand-ins instead.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any


class _Lazy:
    """A module that is imported when an attribute of it is first asked for."""

    def __init__(self, name: str):
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(import_module(self._name), attribute)


if TYPE_CHECKING:
    import numpy as np
    import torch as pt
else:
    np = _Lazy("numpy")
    pt = _Lazy("torch")


def wide(x: Any) -> Any:
    """A float array as float64, in which references compute before they round once; other arrays unchanged."""
    return x.astype(np.float64) if x.dtype.kind in "fV" else x
