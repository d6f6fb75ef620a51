"""Conversions from and to floats of 8 bits, for all values of a type or all neighbours of what rounding decides, as eager's."""

import numpy as np
import pytest
import torch
from support.run_kernel import compile_module
from support.samples import build_kernel, from_torch, to_torch, type_of

from lamina.dialects.dtypes import DTYPES, FLOAT8
from lamina.dialects.interpret import numpy_dtype
from lamina.dialects.record import TensorType


def cast(x: np.ndarray, dtype: str, plain: bool = False) -> np.ndarray:
    """`x` as `dtype` by a compiled kernel."""
    module = build_kernel([type_of(x)], [TensorType(dtype, x.shape)], lambda b, v: b.cast(v, dtype))
    return compile_module(module, plain=plain)(x)


def assert_as_eager(x: np.ndarray, dtype: str, plain: bool = False) -> None:
    """The same bits as eager's, but for those of NaN: eager's own loops differ in its sign."""
    made, expected = cast(x, dtype, plain), from_torch(to_torch(x).to(getattr(torch, DTYPES[dtype].torch)))
    assert made.dtype == expected.dtype
    nan = np.isnan(expected.astype(np.float32))
    np.testing.assert_array_equal(np.isnan(made.astype(np.float32)), nan)
    bits = f"u{made.itemsize}"
    np.testing.assert_array_equal(made.view(bits)[~nan], expected.view(bits)[~nan])


def every(dtype: str) -> np.ndarray:
    """All values of a type of 8 or 16 bits."""
    size = numpy_dtype(dtype).itemsize
    return np.arange(256**size, dtype=f"u{size}").view(numpy_dtype(dtype))


@pytest.mark.parametrize("source", FLOAT8)
@pytest.mark.parametrize("target", ["f32", "bf16", "f16", "f64", "i32", "bool", *FLOAT8])
def test_every_float8_becomes_what_eager_makes_of_it(source, target):
    x = every(source)
    if target == "i32":  # of what is no number, anything
        x = x[np.isfinite(x.astype(np.float32))]
    assert_as_eager(x, target)


@pytest.mark.parametrize("target", FLOAT8)
@pytest.mark.parametrize("source", ["bf16", "f16"])
def test_every_half_rounds_as_eager(source, target):
    assert_as_eager(every(source), target)


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("target", FLOAT8)
def test_f32_beside_ties_rounds_as_eager(target, plain):
    """All values, all ties between two of them, and their neighbours."""
    values = every(target).astype(np.float32)
    values = np.unique(
        np.concatenate([values[np.isfinite(values)], np.float32([464, 480, 496, 61440, 65536, 248, 256])])
    )
    ties = np.concatenate([values, (values[1:] + values[:-1]) / 2])
    beside = [np.nextafter(ties, np.float32(s * np.inf)) for s in (-1, 1)]
    extremes = np.float32([np.inf, -np.inf, np.nan, 3e38, -3e38, 1e-40, -1e-40, -0.0])
    random = np.random.default_rng(0).integers(0, 2**32, 50_000, dtype=np.uint32).view(np.float32)
    assert_as_eager(np.concatenate([ties, *beside, extremes, random]), target, plain)
