"""Ranges of index expressions: what is folded must be so for every value."""

import pytest

from lamina.dialects import dims
from lamina.dialects.dims import symbol
from lamina.passes.loops.index_algebra import Ranges


@pytest.mark.parametrize("end", [5, 7, 12])
@pytest.mark.parametrize("shift", [-3, 0, 2])
def test_places_clamped_to_a_range(end, shift):
    ranges = Ranges({"i": 9})
    place = symbol("i") + shift
    near = dims.dim_max(dims.dim_min(place, end), 0)
    assert ranges.nonnegative(near) and ranges.nonnegative(dims.dim_min(place, end)) == (shift >= 0)
    for i in range(9):
        assert dims.evaluate(ranges.simplify(near), {"i": i}) == max(min(i + shift, end), 0)
