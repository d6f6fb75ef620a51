"""Type promotion and broadcasting agree with torch on every combination."""

import itertools

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings

from lamina.dialects.dtypes import DTYPES, FLOAT8
from lamina.dialects.op import OpError, broadcast
from lamina.dialects.record import Graph, TensorType
from lamina.frontend.aten.promotion import result_type
from lamina.frontend.aten.registry import Value

_ALONE = ("u16", "u32", "u64", *FLOAT8)  # torch promotes these with themselves only
NAMES = [d for d in DTYPES if d not in _ALONE]


class Types:
    """The part of a Context that promotion reads."""

    def __init__(self):
        self.graph = Graph()

    def type(self, value):
        return self.graph.types[value.id]

    def tensor(self, dtype, shape):
        return Value(self.graph.add_input("x", TensorType(dtype, shape)))


def torch_name(dtype):
    return str(dtype).removeprefix("torch.")


@pytest.mark.parametrize("a,b", list(itertools.product(NAMES, NAMES)))
def test_two_tensors_promote_as_in_torch(a, b):
    for shapes in itertools.product([(2,), ()], repeat=2):
        c = Types()
        ours = result_type(c, [c.tensor(d, s) for d, s in zip((a, b), shapes)])
        theirs = torch.result_type(
            *(torch.zeros(s, dtype=getattr(torch, DTYPES[d].torch)) for d, s in zip((a, b), shapes))
        )
        assert DTYPES[ours].torch == torch_name(theirs), (a, b, shapes)


@pytest.mark.parametrize("number", [True, 3, -1, 2.5])
@pytest.mark.parametrize("dtype", NAMES)
def test_a_tensor_and_a_number_promote_as_in_torch(dtype, number):
    for shape in ((2,), ()):
        c = Types()
        ours = result_type(c, [c.tensor(dtype, shape), number])
        theirs = torch.result_type(torch.zeros(shape, dtype=getattr(torch, DTYPES[dtype].torch)), number)
        assert DTYPES[ours].torch == torch_name(theirs), (shape, number)


@settings(max_examples=100)
@given(st.lists(st.lists(st.sampled_from([1, 2, 3]), max_size=4), min_size=1, max_size=3))
def test_broadcast_is_torchs(shapes):
    try:
        expected = tuple(torch.broadcast_shapes(*shapes))
    except RuntimeError:
        with pytest.raises(OpError, match="cannot broadcast"):
            broadcast(*shapes)
        return
    assert broadcast(*shapes) == expected
