"""Quantising and dequantising ops of exported models are compiled, exactly."""

import pytest
import torch
from torch.ao.quantization.fx import _decomposed  # noqa: F401  (defines the ops)

from .conftest import check

OPS = torch.ops.quantized_decomposed
GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(6, 8, generator=GENERATOR) * 9
Q = torch.randint(-128, 128, (6, 8), dtype=torch.int8, generator=GENERATOR)
SCALES, ZEROS = torch.rand(8, generator=GENERATOR) * 0.1 + 0.01, torch.randint(-9, 9, (8,), generator=GENERATOR)

CASES = {
    "quantize": lambda x, q: OPS.quantize_per_tensor(x, 0.05, 3, -128, 127, torch.int8),
    "quantize channels": lambda x, q: OPS.quantize_per_channel(x, SCALES, ZEROS, 1, -128, 127, torch.int8),
    "dequantize": lambda x, q: OPS.dequantize_per_tensor(q, 0.05, 3, -128, 127, torch.int8),
    "dequantize channels": lambda x, q: OPS.dequantize_per_channel(q, SCALES, ZEROS, 1, -128, 127, torch.int8),
}


@pytest.mark.parametrize("name", CASES)
def test_values_are_eagers(name):
    assert not check(CASES[name], X, Q, tolerance=0)["fallback"]
