"""Long float sums: the error against float64 is at most twice eager's (plus a floor), on both pipelines."""

import numpy as np
import pytest
import torch
from support.run_kernel import compile_module
from support.samples import build_kernel

from lamina.dialects.op import registry
from lamina.dialects.record import TensorType

N = 1 << 20
DATA = {
    "tenths": np.full(N, 0.1, np.float32),
    "thousands": np.full(N, 1000.1, np.float32),
    "uniform": np.random.default_rng(0).uniform(0, 1, N).astype(np.float32),
}
EAGER = {"sum": lambda x: x.sum(), "mean": lambda x: x.mean(), "var_mean": lambda x: x.var()}
ATTRIBUTES = {"sum": {"dims": (0,), "dtype": "f32"}, "mean": {"dims": (0,)}, "var_mean": {"dims": (0,)}}


@pytest.mark.parametrize("plain", [True, False], ids=["plain", "loops"])
@pytest.mark.parametrize("name", EAGER)
def test_error_is_at_most_twice_eagers(name, plain):
    op = registry(name)
    type = TensorType("f32", (N,))
    full, results = op.resolve([type], ATTRIBUTES[name])
    module = build_kernel([type], results, lambda b, x: op.lower(b, x=x, **full), wide_sums=plain)
    kernel = compile_module(module, plain=plain)
    for data in DATA.values():
        made = kernel(data)
        made = made[0] if isinstance(made, tuple) else made
        exact = EAGER[name](torch.from_numpy(data).double()).item()
        eager = abs(EAGER[name](torch.from_numpy(data)).item() - exact)
        assert abs(float(made) - exact) <= 2 * eager + 1e-6 * abs(exact) + 1e-9
