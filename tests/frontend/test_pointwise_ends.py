"""Pointwise functions at the ends of what their element types hold: eager's values, bit for bit."""

import pytest
import torch

from .conftest import check


@pytest.mark.parametrize("exponents", [torch.int8, torch.uint8, torch.int64], ids=str)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_ldexp_whose_power_of_two_is_no_float(dtype, exponents):
    """Values down to the smallest ones, exponents that take them to any other, and past the ends."""
    info = torch.iinfo(exponents)
    reach = 2300 if dtype == torch.float64 else 400
    n = torch.randint(max(info.min, -reach), min(info.max, reach), (500,)).to(exponents)
    x = torch.ldexp(torch.randn(500, dtype=torch.float64), torch.randint(-1070, 1020, (500,))).to(dtype)
    special = torch.tensor([0.0, -0.0, float("inf"), -float("inf"), float("nan")], dtype=dtype)
    stats = check(torch.ldexp, torch.cat([special, x]), torch.cat([n[:5], n]), tolerance=0)
    assert not stats["fallback"]
