"""Convolutions with packed weights against eager in float64, in buffers that end at guard pages."""

import numpy as np
import pytest
import torch
from support.packed_convs import COLUMNS, normal, run_packed_conv

import lamina


def run(x, w, **options):
    """For `x` `[N, C, …]` and `w` `[O, C, …]`."""
    return run_packed_conv("packed_conv", 1, x, w, **options)


@pytest.mark.parametrize(
    "x, w, options",
    [
        ((1, 3, 8, 9), (COLUMNS, 3, 3, 3), dict(padding=1)),
        ((2, 5, 7, 7), (COLUMNS + 8, 5, 3, 3), dict(padding=1)),  # the last panel fits one vector
        ((1, 3, 23, 21), (3 * COLUMNS - 1, 3, 7, 7), dict(padding=3, stride=2)),
        ((2, 40, 7, 7), (9, 40, 1, 1), dict()),  # in place
        ((1, 5, 14, 13), (2 * COLUMNS, 5, 1, 1), dict(stride=2)),
        ((1, 3, 16, 24), (5, 3, 4, 4), dict(stride=4)),  # in place, by a table
        ((1, 2, 20, 40), (6, 2, 3, 2), dict(padding=(2, 1), dilation=(2, 3), stride=(1, 2))),
        ((2, 3, 301), (COLUMNS, 3, 5), dict(padding=2, stride=3)),
        ((1, 2, 5, 6, 7), (COLUMNS, 2, 2, 3, 3), dict(padding=(0, 1, 1), stride=(1, 2, 1))),
        ((1, 150, 13, 12), (COLUMNS + 3, 150, 3, 3), dict(padding=1)),  # blocks of K and of positions
        ((1, 700, 5, 5), (COLUMNS, 700, 1, 1), dict()),
        ((1, 4, 3, 3), (COLUMNS, 4, 3, 3), dict()),  # one position
        ((1, 5, 96, 96), (COLUMNS // 2, 5, 3, 3), dict(padding=1)),  # one vector of channels, rows of whole tiles
        ((2, 4, 9, 49), (COLUMNS // 2, 4, 2, 3), dict(stride=(1, 2), dilation=(2, 1))),  # ... by two phases
        ((1, 4, 11, 24), (COLUMNS // 2 - 1, 4, 3, 1), dict()),  # ... in place
        (
            (1, 150, 8, 48),
            (COLUMNS, 150, 3, 5),
            dict(padding=(1, 6), dilation=(1, 3)),
        ),  # rows of whole tiles, blocks of K
        ((1, 3, 71), (COLUMNS, 3, 24), dict()),  # more taps than are unrolled
    ],
)
def test_equals_float64(x, w, options):
    got, exact = run(normal(*x), normal(*w, seed=1), **options)
    np.testing.assert_allclose(got, exact, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype, tolerance", [("f64", 1e-12), ("bf16", 1e-2)])
def test_other_types(dtype, tolerance):
    got, exact = run(normal(1, 6, 9, 9), normal(COLUMNS + 1, 6, 3, 3, seed=1), padding=1, dtype=dtype)
    np.testing.assert_allclose(got, exact, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("x", [(1, 3, 1, 1), (2, 3, 5, 9), (1, 3, 20, 30)])
@pytest.mark.parametrize("channels, symbols", [(COLUMNS, (0, 2, 3)), (COLUMNS // 2, (0, 2, 3)), (COLUMNS // 2, (0, 2))])
def test_symbolic_batch_and_sizes(x, channels, symbols):
    got, exact = run(normal(*x), normal(channels, 3, 3, 3, seed=1), padding=1, symbols=symbols)
    np.testing.assert_allclose(got, exact, rtol=1e-4, atol=1e-4)


def test_what_surrounds_it_is_fused():
    torch.manual_seed(0)
    conv = torch.nn.Conv2d(8, 40, 3, padding=1)
    model = torch.nn.Sequential(torch.nn.ReLU(), conv, torch.nn.BatchNorm2d(40), torch.nn.Hardswish()).eval()
    x = torch.randn(2, 8, 9, 11)
    with torch.no_grad():
        compiled = lamina.compile(model, (x,))
        got, exact = compiled(x), model.double()(x.double())
    main = compiled.ir("kernels").split("func.func")[1]
    assert "packed_conv" in compiled.ir("kernels") and main.count("lamina.launch") == 1
    np.testing.assert_allclose(got.numpy(), exact.numpy(), rtol=1e-4, atol=1e-5)
