"""What an op refuses, and what it says: the op, the place, the operands, the way out."""

import pytest

from lamina.dialects.dims import symbol
from lamina.dialects.op import OpError
from lamina.dialects.record import Graph, Location, TensorType

WHERE = Location("model.py", 31)


def graph(*types):
    g = Graph()
    return g, [g.add_input(f"x{i}", t) for i, t in enumerate(types)]


def f32(*shape):
    return TensorType("f32", shape)


CASES = {
    "dtypes": ("add", [f32(3), TensorType("i64", (3,))], {}, "operands of different dtypes f32, i64; cast them first"),
    "broadcast": ("mul", [f32(3), f32(4)], {}, "cannot broadcast sizes 3 and 4 in dim -1"),
    "symbolic broadcast": ("mul", [f32(symbol("s0")), f32(4)], {}, "cannot broadcast sizes s0 and 4"),
    "float function": ("exp", [TensorType("i64", (3,))], {}, "takes float tensors, got i64"),
    "true division": (
        "div",
        [TensorType("i64", ()), TensorType("i64", ())],
        {},
        "true division of i64; cast to a float",
    ),
    "reshape": ("reshape", [f32(2, 3)], {"shape": (4,)}, r"cannot reshape f32\[2, 3\] to \[4\]"),
    "permute": ("permute", [f32(2, 3)], {"dims": (0, 0)}, r"dims \[0, 0\] do not permute a rank-2 tensor"),
    "slice": (
        "slice",
        [f32(4)],
        {"starts": (2,), "sizes": (3,), "steps": (1,)},
        "3 elements from 2 by 1 do not fit in 4",
    ),
    "concat": ("concat", [f32(2, 3), f32(2, 4)], {"dim": 0}, r"f32\[2, 4\] beside f32\[2, 3\] along dim 0"),
    "empty reduction": ("amax", [f32(0, 3)], {"dims": (0,)}, r"no elements to choose from in f32\[0, 3\] along \[0\]"),
    "reduced dim": ("sum", [f32(3)], {"dims": (1,)}, r"dims \[1\] of f32\[3\]; they are 0..0"),
    "condition": ("where", [f32(3), f32(3), f32(3)], {}, "the condition is bool, got f32"),
    "reflection": (
        "pad",
        [f32(3)],
        {"low": (3,), "high": (0,), "mode": "reflect"},
        "reflect padding of 3 in a size of 3",
    ),
    "unknown attribute": ("gelu", [f32(3)], {"approx": "tanh"}, "unknown attribute 'approx'; it has approximate"),
    "missing attribute": ("permute", [f32(3)], {}, "attribute 'dims' is missing"),
    "index": ("gather", [f32(3), f32(3)], {"dim": 0}, r"an index is an integer tensor, got f32\[3\]"),
}


@pytest.mark.parametrize("name", CASES)
def test_message(name):
    op, types, attributes, message = CASES[name]
    g, values = graph(*types)
    with pytest.raises(OpError, match=f"^lamina.{op} at model.py:31: {message}"):
        g.add(op, *values, location=WHERE, **attributes)
    assert not g.nodes
