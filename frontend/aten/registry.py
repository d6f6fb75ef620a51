"""The table of ATen converters: `@aten("add.Tensor")` registers how one overload becomes lamina ops.

A converter is called as `converter(c, *args, **kwargs)`: `c` is the Context of `frontend/context.py`, tensors are
`Value`s, symbolic sizes `dims.Expr`, dtypes our names; devices, layouts and memory formats are None. It returns a Value, a
tuple of them, or None for a result nobody may use, and raises `Unsupported` for a case that eager has to run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

Converter = Callable[..., Any]
_CONVERTERS: dict[str, Converter] = {}


class Unsupported(Exception):
    """This use of an op is not ours; eager runs it. The message says why."""


@dataclass(frozen=True)
class Value:
    """A tensor of the graph record that is being built."""

    id: int


def aten(*names: str) -> Callable[[Converter], Converter]:
    """Register a converter for overloads such as `"add.Tensor"`; a bare name means `.default`."""
    return overloads(*(f"aten.{name}" if "." in name else f"aten.{name}.default" for name in names))


def overloads(*names: str) -> Callable[[Converter], Converter]:
    """Register a converter for overloads of any library, by full name: `"prims.convert_element_type.default"`."""

    def register(function: Converter) -> Converter:
        for name in names:
            _add(name, function)
        return function

    return register


def add(name: str, function: Converter) -> None:
    """Register one overload, named as for `aten`."""
    aten(name)(function)


def _add(key: str, function: Converter) -> None:
    if key in _CONVERTERS:
        raise TypeError(f"{key} has two converters: {_CONVERTERS[key].__module__} and {function.__module__}")
    _CONVERTERS[key] = function


def converters() -> dict[str, Converter]:
    """Every converter by full name, e.g. `aten.add.Tensor`; imports the modules of this folder on first use."""
    load_all()
    return _CONVERTERS


@cache
def load_all() -> None:
    """Import every module beside this one."""
    package = __package__ or ""
    for module in iter_modules(import_module(package).__path__):
        import_module(f"{package}.{module.name}")


def require(condition: bool, reason: str) -> None:
    """Raise Unsupported(reason) unless `condition`."""
    if not condition:
        raise Unsupported(reason)
