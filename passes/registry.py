"""The registry of our passes: a pass is a function on a module, known in pipelines by its function's name.

`@register def fold_add_zero(module)` in `passes/fold_add_zero.py` is `lamina-fold-add-zero` in a pipeline. Options are
keyword arguments with defaults (`lamina-tile{size=8}`). A pass takes a module that verifies and leaves one that does.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

_PASSES: dict[str, Callable[..., None]] = {}


def register(function: Callable[..., None]) -> Callable[..., None]:
    """Make `function(module, **options)` a pass named `lamina-<name-with-dashes>`."""
    name = "lamina-" + function.__name__.replace("_", "-")
    if not function.__doc__:
        raise TypeError(f"pass '{name}' lacks a docstring with its before and after")
    if name in _PASSES:
        raise TypeError(f"pass '{name}' is defined twice: {_PASSES[name].__module__} and {function.__module__}")
    _PASSES[name] = function
    return function


def passes() -> dict[str, Callable[..., None]]:
    """Every registered pass by pipeline name."""
    return dict(_PASSES)


def options(name: str) -> dict[str, Any]:
    """The options of pass `name` with their defaults."""
    parameters = list(inspect.signature(_PASSES[name]).parameters.values())[1:]
    return {p.name: p.default for p in parameters}
