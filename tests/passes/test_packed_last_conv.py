"""Convolutions with channels last and packed weights against eager in float64, in buffers that end at guard pages."""

import numpy as np
import pytest
from support.packed_convs import COLUMNS, normal, run_packed_conv

from lamina.targets import get_target

pytestmark = pytest.mark.skipif(get_target("native").features.has_lane_fma, reason="made for other tiles")


def run(x, w, **options):
    """For `x` `[N, …, C]` and `w` `[O, …, C]`."""
    return run_packed_conv("packed_last_conv", x.ndim - 1, x, w, **options)


@pytest.mark.parametrize(
    "x, w, options",
    [
        ((1, 8, 9, 3), (COLUMNS, 3, 3, 3), dict(padding=1)),
        ((2, 7, 7, 5), (COLUMNS + 8, 3, 3, 5), dict(padding=1)),  # the last panel fits one vector
        ((1, 23, 21, 3), (3 * COLUMNS - 1, 7, 7, 3), dict(padding=3, stride=2)),
        ((2, 7, 7, 40), (9, 1, 1, 40), dict(stride=2)),  # in place
        ((1, 6, 7, 10), (COLUMNS, 1, 1, 10), dict(padding=1)),
        ((1, 16, 24, 5), (5, 4, 4, 5), dict(stride=4)),  # in place, by lines of taps
        ((1, 9, 14, 20), (COLUMNS, 2, 3, 20), dict(dilation=(1, 2))),  # ... tap by tap
        ((1, 20, 40, 2), (6, 3, 2, 2), dict(padding=(2, 1), dilation=(2, 3), stride=(1, 2))),
        ((2, 301, 3), (COLUMNS, 5, 3), dict(padding=2, stride=3)),
        ((1, 5, 6, 7, 4), (COLUMNS, 2, 3, 3, 4), dict(padding=(0, 1, 1), stride=(1, 2, 1))),
        ((1, 13, 12, 150), (COLUMNS + 3, 3, 3, 150), dict(padding=1)),  # parts of a line, blocks of positions
        ((1, 6, 5, 24), (2 * COLUMNS, 3, 3, 24), dict(padding=1)),  # one line a block
        ((1, 4, 4, 131), (COLUMNS, 2, 2, 131), dict(dilation=2, padding=1)),  # a tap whose size is prime
        ((1, 5, 5, 1100), (COLUMNS, 1, 1, 1100), dict(stride=2)),
        ((1, 3, 3, 4), (COLUMNS, 3, 3, 4), dict()),  # one position
        ((1, 96, 96, 5), (COLUMNS // 2, 3, 3, 5), dict(padding=1)),  # one vector of channels, rows of whole tiles
        ((2, 9, 49, 4), (COLUMNS // 2 - 1, 2, 3, 4), dict(stride=(1, 2))),
    ],
)
def test_equals_float64(x, w, options):
    got, exact = run(normal(*x), normal(*w, seed=1), **options)
    np.testing.assert_allclose(got, exact, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype, tolerance", [("f64", 1e-12), ("bf16", 1e-2)])
def test_other_types(dtype, tolerance):
    got, exact = run(normal(1, 9, 9, 6), normal(COLUMNS + 1, 3, 3, 6, seed=1), padding=1, dtype=dtype)
    scale = np.abs(exact).max() if dtype == "bf16" else 1
    np.testing.assert_allclose(got, exact, rtol=tolerance, atol=tolerance * scale)


@pytest.mark.parametrize("x", [(1, 1, 1, 3), (2, 5, 9, 3), (1, 20, 30, 3)])
@pytest.mark.parametrize("channels, symbols", [(COLUMNS, (0, 1, 2)), (COLUMNS // 2, (0, 1)), (9, (0, 2))])
def test_symbolic_batch_and_sizes(x, channels, symbols):
    got, exact = run(normal(*x), normal(channels, 3, 3, 3, seed=1), padding=1, symbols=symbols)
    np.testing.assert_allclose(got, exact, rtol=1e-4, atol=1e-4)
