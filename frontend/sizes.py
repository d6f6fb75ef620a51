"""torch's symbolic integers as sizes of ours, and back to Python text.

`to_dim` turns a `SymInt` (a sympy expression over a ShapeEnv's symbols) into a `dims.Dim`; symbols keep torch's names
(`s77`, `u0`) unless `names` renames them. What we have no form for (floats, conditions) is a `SizeError`, and the op
that needs it runs in eager.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import torch

from ..dialects import dims
from ..dialects.dim_fold import fold
from ..dialects.dims import Dim


class SizeError(ValueError):
    """A symbolic size that has no form over our expressions."""


def to_dim(size: Any, names: Mapping[str, str] | None = None) -> Dim:
    """Turn an int or SymInt into a Dim; `names` maps torch's symbol names to new ones."""
    if isinstance(size, torch.SymInt):
        return from_sympy(size.node.expr, names or {})
    if isinstance(size, int) and not isinstance(size, bool):
        return size
    raise SizeError(f"a size cannot be a {type(size).__name__}")


def stride_to_dim(stride: Any, names: Mapping[str, str] | None = None) -> Dim:
    """As `to_dim`, with `max(1, n)` read as `n`: torch's strides of tensors whose size `n` may be 0.

    Where the two differ the tensor is empty, and no element has an address.
    """
    return _drop_max_one(to_dim(stride, names))


def from_sympy(expr: Any, names: Mapping[str, str] = {}) -> Dim:
    """Turn a sympy expression of torch's ShapeEnv into a Dim; SizeError names what has no form."""
    if expr.is_Integer:
        return int(expr)
    if expr.is_Symbol:
        return dims.symbol(names.get(expr.name, expr.name))
    kind = type(expr).__name__
    if kind not in _FUNCTIONS:
        raise SizeError(f"no form for '{expr}' ({kind}) in a size")
    return _FUNCTIONS[kind](*(from_sympy(a, names) for a in expr.args))


def free_symbols(value: Any) -> set[str]:
    """torch's names of the symbols in a size, or in a list of sizes."""
    if isinstance(value, torch.SymInt):
        return {s.name for s in value.node.expr.free_symbols}
    if isinstance(value, (list, tuple, torch.Size)):
        return {name for v in value for name in free_symbols(v)}
    return set()


def hint(size: Any) -> int | None:
    """The size torch saw when it traced, or None for one that depends on data."""
    if isinstance(size, int):
        return size
    return size.node.hint if size.node.has_hint() else None


def python_names() -> dict[str, Callable[[int, int], int]]:
    """The functions that the text of a Dim refers to."""
    return {"floordiv": lambda a, b: a // b, "mod": lambda a, b: a % b, "max": max, "min": min}


def _power(base: Dim, exponent: Dim) -> Dim:
    if not isinstance(exponent, int) or not 0 <= exponent <= 8:
        raise SizeError(f"no form for '{base} ** {exponent}' in a size")
    return dims.product([base] * exponent)


def _add(*terms: Dim) -> Dim:
    return reduce(lambda a, b: a + b, terms)


def _max(*values: Dim) -> Dim:
    return reduce(dims.dim_max, values)


def _min(*values: Dim) -> Dim:
    return reduce(dims.dim_min, values)


_FUNCTIONS: dict[str, Callable[..., Dim]] = {
    "Add": _add,
    "Mul": lambda *factors: dims.product(factors),
    "Pow": _power,
    "PowByNatural": _power,
    "FloorDiv": dims.floordiv,
    "CleanDiv": dims.floordiv,
    "CeilDiv": dims.ceildiv,
    "Mod": dims.mod,
    "PythonMod": dims.mod,
    "ModularIndexing": lambda x, divisor, modulus: dims.mod(dims.floordiv(x, divisor), modulus),
    "Max": _max,
    "Min": _min,
    "Identity": lambda x: x,
}


def _drop_max_one(dim: Dim) -> Dim:
    def function(name: str, a: Dim, b: Dim) -> Dim:
        if name == "max" and 1 in (a, b):
            return _drop_max_one(b if a == 1 else a)
        return dims.apply(name, _drop_max_one(a), _drop_max_one(b))

    def leaf(x: int | str) -> Dim:
        return x if isinstance(x, int) else dims.symbol(x)

    return fold(dim, leaf, function, lambda a, b: a + b, lambda a, b: a * b)
