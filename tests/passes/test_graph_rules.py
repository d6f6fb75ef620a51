"""Laws behind the graph passes: shapes around a reshape, exact casts, axes in a kernel's space."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamina.dialects import dims
from lamina.dialects.dtypes import DTYPES
from lamina.dialects.interpret import numpy_dtype
from lamina.passes.graph.canonicalize_values import is_exact_cast
from lamina.passes.graph.kernel_spaces import (
    covers_rows,
    covers_space,
    full_axes,
    is_trailing,
    pointwise_axes,
    reduced_axes,
)
from lamina.passes.graph.rename_symbols import Renaming
from lamina.passes.graph.sink_reshapes import before_reshape, dim_groups

S = dims.symbol("s0")


@st.composite
def reshapes(draw):
    """Two shapes with equal products, made by merging the factors of each in its own way."""
    factors = draw(st.lists(st.sampled_from([1, 2, 3, 4]), max_size=5))

    def merged():
        shape, size = [], 1
        for f in factors:
            size *= f
            if draw(st.booleans()):
                shape.append(size)
                size = 1
        return tuple([*shape, size])

    return merged(), merged()


@given(reshapes(), st.data())
@settings(max_examples=150)
def test_operand_before_a_reshape_broadcasts_to_the_same_values(shapes, data):
    old, new = shapes
    shape = tuple(d if data.draw(st.booleans()) else 1 for d in new)
    shape = shape[data.draw(st.integers(0, len(shape))) :]
    x = np.arange(math.prod(shape)).reshape(shape)
    earlier = before_reshape(shape, old, new)
    if earlier is None:
        return
    expected = np.broadcast_to(x, new).reshape(old)
    np.testing.assert_array_equal(np.broadcast_to(x.reshape(earlier), old), expected)


@given(reshapes())
@settings(max_examples=100)
def test_groups_cover_both_shapes_with_equal_products(shapes):
    old, new = shapes
    groups = dim_groups(old, new)
    assert groups is not None
    for before, after in groups:
        assert math.prod(old[i] for i in before) == math.prod(new[j] for j in after)
    assert [i for g in groups for i in g[0]] == list(range(len(old)))
    assert [j for g in groups for j in g[1]] == list(range(len(new)))


@pytest.mark.parametrize(
    ("old", "new", "count"),
    [((S, 3, 8), (3 * S, 8), 2), ((3 * S, 8), (S, 3, 8), 2), ((S * 12, 7), (S, 12, 7), 2), ((S, 4), (4, S), 1)],
    ids=str,
)
def test_groups_of_symbolic_sizes(old, new, count):
    groups = dim_groups(old, new)
    assert groups is not None and len(groups) == count


def test_no_groups_without_elements():
    assert dim_groups((0, 3), (0, 5)) is None


def _extremes(dtype):
    kind = DTYPES[dtype].kind
    if kind == "bool":
        return [False, True]
    if kind == "float":
        import ml_dtypes

        info = ml_dtypes.finfo(numpy_dtype(dtype))
        return [float(info.max), float(info.tiny), float(info.smallest_subnormal), 1.0 + float(info.eps)]
    info = np.iinfo(numpy_dtype(dtype))
    return [int(info.min), int(info.max), int(info.max) - 1]


@pytest.mark.parametrize("source", DTYPES)
@pytest.mark.parametrize("target", DTYPES)
def test_exact_casts_keep_the_extremes(source, target):
    if not is_exact_cast(source, target):
        return
    for value in _extremes(source):
        x = np.array(value, numpy_dtype(source))
        y = x.astype(numpy_dtype(target))
        assert y.astype(numpy_dtype(source)) == x and float(y) == float(x)


@pytest.mark.parametrize(
    ("source", "target"),
    [("i64", "f64"), ("i32", "f32"), ("f16", "bf16"), ("bf16", "f16"), ("u8", "i8"), ("i8", "u64")],
)
def test_casts_that_are_not_exact(source, target):
    assert not is_exact_cast(source, target)


def test_axes_of_a_row_kernel():
    space, reduced = (2, 3, 8), frozenset({2})
    assert reduced_axes(space, reduced, (2, 3, 1)) == (0, 1, None)
    assert reduced_axes(space, reduced, (2, 3)) == (0, 1)
    assert reduced_axes(space, reduced, (3, 2)) is None
    keep = pointwise_axes([((0, 1, None), (2, 3, 1)), (full_axes(space), space)], space)
    assert keep == (0, 1, 2) and covers_space(keep, space, space)
    assert covers_rows((0, 1), space, reduced, (2, 3))
    assert not covers_rows((1, 0), space, reduced, (3, 2))
    assert not covers_rows((0,), space, reduced, (2,))


def test_operands_that_disagree_have_no_axes():
    assert pointwise_axes([((0, 1), (4, 4)), ((1, 0), (4, 4))], (4, 4)) is None


def test_trailing_dims_ignore_size_one():
    assert is_trailing((4, 8, 1), frozenset({1}))
    assert not is_trailing((4, 8), frozenset({0}))


def test_renaming_follows_first_use_and_keeps_products():
    from lamina.dialects.record import TensorType

    renaming = Renaming.of([TensorType("f32", (S * 4, dims.symbol("a"))), TensorType("f32", (S,))], [])
    assert renaming.old == ["s0", "a"] and renaming.new == ["d0", "d1"]
    assert str(renaming.dim(S * 4 + 1)) == "4*d0 + 1"
