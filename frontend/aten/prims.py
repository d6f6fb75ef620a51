"""The few `prims` ops that torch puts into graphs itself: AOTAutograd's partitioner casts, Dynamo takes `addcmul` apart."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from .elementwise_ternary import addcdiv, addcmul
from .registry import Value, overloads
from .tensor_math import T


@overloads("prims.convert_element_type.default")
def convert_element_type(c: Any, x: Value, dtype: str) -> Value:
    """`x` as `dtype`."""
    return c.cast(x, dtype)


@overloads("prims.fma.default")
def fma(c: Any, a: Value, b: Any, addend: Value) -> Value:
    """`a * b + addend`, rounded once.

    Dynamo (2.13) makes it of `addcmul_` and `addcdiv_` by a number, `b`, and rounds what `a` is in their type. Those round
    less, and on CPUs elsewhere, so they are put back.
    """
    made = c.node.args[0]
    whole = _TAKEN_APART.get(getattr(made, "target", None))
    if whole is not None and isinstance(b, (int, float)) and all(isinstance(x, fx.Node) for x in made.args):
        return whole(c, addend, *(c.value(x) for x in made.args), value=b)
    (x, y), dtype = c.promote(a, b)
    return T(c, c.cast(addend, dtype)).plus_product(T(c, x), T(c, y)).value


_TAKEN_APART = {torch.ops.aten.mul.Tensor: addcmul, torch.ops.aten.div.Tensor: addcdiv}
