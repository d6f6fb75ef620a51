"""Artifacts with floats of 8 bits: arrays of ml_dtypes or of their bytes go in, bytes come out."""

import ml_dtypes
import numpy as np
import pytest
import torch
from torch.export import export

import lamina
from lamina.runtime.errors import LaminaRuntimeError

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2


class Quantised(torch.nn.Module):
    """A layer with an f8 weight, and what it is told to round."""

    def __init__(self):
        super().__init__()
        weight = torch.randn(32, 48, generator=torch.Generator().manual_seed(0))
        self.register_buffer("weight", weight.to(E4M3))

    def forward(self, x, scale):
        y = torch._scaled_mm(x, self.weight.t(), scale, torch.tensor(0.5), out_dtype=torch.float32)
        return y, y.to(E5M2)


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    """The model's artifact, its arguments and eager's results."""
    x = torch.randn(16, 48, generator=torch.Generator().manual_seed(1)).to(E4M3)
    model, scale = Quantised().eval(), torch.tensor(1.5)
    path = tmp_path_factory.mktemp("float8") / "model.lamina"
    lamina.export(export(model, (x, scale))).save(path)
    bytes_ = x.view(torch.uint8).numpy()
    return lamina.load(path), bytes_, scale.numpy(), [y for y in model(x, scale)]


@pytest.mark.parametrize("view", ["uint8", "float8_e4m3fn"])
def test_bytes_and_ml_dtypes_give_eagers_values(case, view):
    model, x, scale, expected = case
    y, narrow = model(x.view(np.uint8 if view == "uint8" else ml_dtypes.float8_e4m3fn), scale)
    np.testing.assert_allclose(y, expected[0].numpy(), rtol=1e-6, atol=1e-5)
    assert narrow.dtype == np.uint8
    np.testing.assert_array_equal(narrow, torch.from_numpy(y).to(E5M2).view(torch.uint8).numpy())


def test_results_may_go_to_an_array_of_ml_dtypes(case):
    model, x, scale, _ = case
    out = [np.empty((16, 32), np.float32), np.empty((16, 32), ml_dtypes.float8_e5m2)]
    expected = model(x, scale)[1]
    model(x, scale, out=out)
    np.testing.assert_array_equal(out[1].view(np.uint8), expected)


def test_another_format_is_refused(case):
    model, x, scale, _ = case
    with pytest.raises(LaminaRuntimeError, match="has dtype f8E5M2, expected f8E4M3FN"):
        model(x.view(ml_dtypes.float8_e5m2), scale)
