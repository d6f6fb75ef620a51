"""torch's symbolic sizes as ours, and layouts of strided tensors."""

import pytest
import sympy
import torch
from torch.utils._sympy.functions import CeilDiv, FloorDiv, Max, Mod, PythonMod

from lamina.dialects import dims
from lamina.frontend.layout import layout_of
from lamina.frontend.sizes import SizeError, from_sympy
from lamina.frontend.values import layout

A, B = sympy.symbols("s0 s1", integer=True, positive=True)
S, T = dims.symbol("s0"), dims.symbol("s1")


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (A * 4 + B * A - 3, S * 4 + T * S - 3),
        (A**2, S * S),
        (FloorDiv(A, 2), dims.floordiv(S, 2)),
        (CeilDiv(A, 4), dims.ceildiv(S, 4)),
        (Mod(A, 3), dims.mod(S, 3)),
        (PythonMod(A, 3), dims.mod(S, 3)),
        (Max(A, B, 7), dims.dim_max(dims.dim_max(S, T), 7)),
    ],
)
def test_expressions(theirs, ours):
    for values in ({"s0": 5, "s1": 9}, {"s0": 12, "s1": 4}):
        assert dims.evaluate(from_sympy(theirs), values) == dims.evaluate(ours, values)


def test_symbols_are_renamed():
    assert from_sympy(A + 1, {"s0": "batch"}) == dims.symbol("batch") + 1


def test_unknown_function_is_an_error():
    with pytest.raises(SizeError, match="no form for"):
        from_sympy(sympy.Rational(1, 2) * A)


@pytest.mark.parametrize(
    ("tensor", "order", "broadcast"),
    [
        (torch.zeros(2, 3), (0, 1), ()),
        (torch.zeros(2, 3).t(), (1, 0), ()),
        (torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last), (0, 2, 3, 1), ()),
        (torch.zeros(2, 1).expand(2, 3), (0,), (1,)),
        (torch.zeros(3, 8)[:, ::2], None, ()),
        (torch.zeros(1, 3, 1).transpose(0, 2), (0, 1, 2), ()),
        (torch.zeros(0, 3).t(), (0, 1), ()),
        (torch.zeros(()), (), ()),
    ],
)
def test_layouts(tensor, order, broadcast):
    where = layout(tensor)
    assert (where.order, where.broadcast) == (order, broadcast)


def test_symbolic_strides_are_proved_not_guessed():
    """The hints say dense, the expressions do not: a flat buffer, whatever the sizes are."""
    assert layout_of((S, T), (T + 1, 1), (5, 1)).order is None
    assert layout_of((S, T), (1, S), (1, 4)).order == (1, 0)
