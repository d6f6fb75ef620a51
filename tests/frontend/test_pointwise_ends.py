"""Pointwise functions at the ends of what their element types hold: eager's values, bit for bit."""

import operator

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


FUNCTIONS = (
    "exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh sqrt rsqrt erfc erfinv lgamma "
    "digamma sigmoid reciprocal logit sinc special.ndtr special.entr"
).split()
WIDE = (
    "special.log_ndtr special.i1 special.ndtri special.bessel_j0 special.bessel_j1".split()
)  # eager has none for 16 bits
POINTS = (0.0, -0.0, 0.25, 0.5, -0.5, 1.0, -1.0, 2.0, -2.0, 3.0, 10.0, 100.0, 1e30, -1e30)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_zeros_infinities_and_nans_are_where_eagers_are(dtype):
    """With their signs; what lies between is a matter of accuracy."""
    x = torch.tensor([*POINTS, float("inf"), -float("inf"), float("nan")], dtype=dtype)
    functions = {
        name: operator.attrgetter(name)(torch) for name in FUNCTIONS + (WIDE if dtype != torch.bfloat16 else [])
    }
    got = torch.compile(lambda x: {n: f(x) for n, f in functions.items()}, backend="lamina")(x)
    for name, function in functions.items():
        eager = function(x)
        kinds = [torch.stack([y.isnan(), y.isinf(), y == 0, y.signbit() & ~y.isnan()]) for y in (got[name], eager)]
        wrong = (kinds[0] != kinds[1]).any(0)
        assert not wrong.any(), (
            f"{name}({x[wrong].tolist()}) is {got[name][wrong].tolist()}, not {eager[wrong].tolist()}"
        )
