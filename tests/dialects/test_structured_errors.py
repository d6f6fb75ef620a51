"""What structured ops say when they are used wrongly: the op, the place, and what would be right."""

import pytest

from lamina.dialects.dims import symbol
from lamina.dialects.op import OpError, registry
from lamina.dialects.record import Location, TensorType

PLACE = Location("model.py", 31)


def f32(*shape):
    return TensorType("f32", shape)


WRONG = [
    ("softmax", [f32(2, 3)], {"dim": 3}, "dim 3 is outside a rank-2 tensor; dims are -2..1"),
    ("softmax", [TensorType("i64", (3,))], {"dim": 0}, "takes a float tensor, got i64"),
    ("layer_norm", [f32(2, 3), f32(4), None], {"dims": 1}, r"weight has shape \[4\], the normalised dims are \[3\]"),
    ("group_norm", [f32(2, 6, 3), None, None], {"groups": 4}, "6 channels do not divide into 4 groups"),
    ("matmul", [f32(2, 3), f32(4, 5)], {}, "contracts size 3 with size 4"),
    ("matmul", [f32(2, 2, 3), f32(3, 3, 4)], {}, r"leading dims \[2\] and \[3\] differ"),
    ("linear", [f32(2, 3), f32(4, 3), f32(5)], {}, r"bias must have shape \[4\]"),
    (
        "conv",
        [f32(1, 3, 5), f32(4, 2, 3), None],
        {"stride": (1,), "padding": (0,), "dilation": (1,)},
        "x has 3 channels, w asks for 2",
    ),
    (
        "max_pool",
        [f32(1, 3, 5)],
        {"kernel": (2,), "stride": (1,), "padding": (2,), "dilation": (1,)},
        "padding must be at most half the kernel",
    ),
    ("attention", [f32(1, 3, 4, 8), f32(1, 2, 4, 8), f32(1, 2, 4, 8), None], {}, "3 query heads ≠ 1 · 2"),
    ("topk", [f32(4)], {"k": 5}, "takes the top 5 of 4 elements"),
    ("scatter", [f32(4), f32(4), f32(4)], {"dim": 0}, "index must be an integer tensor, got f32"),
    (
        "scatter",
        [f32(4), TensorType("i64", (2,)), f32(4)],
        {"dim": 0, "reduce": "mean"},
        "reduce 'mean' is not one of none",
    ),
    ("index_put", [f32(4), f32(3), TensorType("i64", (2,))], {"dims": (0,)}, "cannot broadcast|does not broadcast"),
    ("slice_scatter", [f32(4), f32(2)], {"starts": (3,), "steps": (1,)}, "writes 3..4 of dim 0, which has size 4"),
]


@pytest.mark.parametrize("name,types,attributes,message", WRONG)
def test_message(name, types, attributes, message):
    with pytest.raises(OpError, match=rf"^lamina\.{name} at model\.py:31: .*({message})"):
        registry(name).resolve(types, attributes, PLACE)


def test_symbolic_sizes_of_windows():
    n = symbol("s0")
    pool = {"kernel": (3,), "stride": (2,), "padding": (1,), "dilation": (1,)}
    (plain, _) = registry("max_pool").resolve([f32(1, 2, 2 * n)], pool)[1]
    assert plain.shape == (1, 2, n)
    (ceil, _) = registry("max_pool").resolve([f32(1, 2, 2 * n)], {**pool, "ceil": True})[1]
    assert str(ceil.shape[2]) == str(n + 1) or "min" in str(ceil.shape[2])
