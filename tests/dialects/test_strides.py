"""View chains have numpy's offsets and strides."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamina.dialects.dims import symbol
from lamina.dialects.strides import View, ViewError


@settings(max_examples=200)
@given(st.data())
def test_chains_match_numpy(data):
    shape = tuple(data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    base = np.arange(np.prod(shape), dtype=np.int64).reshape(shape)
    array, view = base, View.whole(shape)
    for _ in range(data.draw(st.integers(1, 5))):
        rank = array.ndim
        match data.draw(st.sampled_from(["permute", "slice", "expand", "reshape"])):
            case "permute":
                order = data.draw(st.permutations(range(rank)))
                array, view = array.transpose(order), view.apply("permute", {"dims": order})
            case "slice":
                starts = [data.draw(st.integers(0, n - 1)) for n in array.shape]
                sizes = [data.draw(st.integers(1, n - s)) for n, s in zip(array.shape, starts)]
                array = array[tuple(slice(s, s + n) for s, n in zip(starts, sizes))]
                view = view.apply("slice", {"starts": starts, "sizes": sizes, "steps": [1] * rank})
            case "expand":
                target = (2, *(data.draw(st.sampled_from([n, 3])) if n == 1 else n for n in array.shape))
                array, view = np.broadcast_to(array, target), view.apply("expand", {"shape": target})
            case "reshape":
                flat = array.size
                first = data.draw(st.sampled_from([d for d in range(1, flat + 1) if flat % d == 0]))
                target = (first, flat // first)
                moved = array.view()
                try:
                    moved = np.lib.stride_tricks.as_strided(array, array.shape, array.strides)
                    moved.shape = target
                except AttributeError:
                    with pytest.raises(ViewError):
                        view.apply("reshape", {"shape": target})
                    return
                array, view = moved, view.apply("reshape", {"shape": target})
    read = np.lib.stride_tricks.as_strided(
        base.reshape(-1)[view.offset :], view.shape, [8 * s for s in view.strides], writeable=False
    )
    np.testing.assert_array_equal(read, array)


def test_symbolic_sizes():
    s = symbol("s0")
    view = View.whole((s, 4, 8)).apply("permute", {"dims": (1, 0, 2)})
    assert view.strides == (8, 32, 1) and not view.contiguous
    split = View.whole((4 * s, 8)).apply("permute", {"dims": (1, 0)}).apply("reshape", {"shape": (8, s, 4)})
    assert split.strides == (1, 32, 8)
    back = view.apply("permute", {"dims": (1, 0, 2)}).apply("reshape", {"shape": (32 * s,)})
    assert back.contiguous
    row = View.whole((s, 8)).apply("slice", {"starts": (s - 1, 0), "sizes": (1, 8), "steps": (1, 1)})
    assert row.offset == 8 * s - 8 and row.contiguous


def test_as_strided_needs_contiguous():
    with pytest.raises(ViewError):
        View.whole((4, 8)).apply("permute", {"dims": (1, 0)}).apply(
            "as_strided", {"shape": (4,), "strides": (1,), "offset": (0,)}
        )
