"""Small models ahead of time for CPU, NVIDIA and AMD in one file, loaded for an AMD GPU and run by the emulator."""

import re

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from support import amdgpu_code
from support.amdgpu_code import CHIPS
from support.fake_hip import FakeHip
from torch import nn

import lamina
from lamina.runtime.errors import ArtifactError
from lamina.tools.inspect import inspect_command

pytestmark = pytest.mark.skipif(bool(amdgpu_code.MISSING), reason=f"needs {amdgpu_code.MISSING}")


class ResidualBlock(nn.Module):
    """Two convolutions with batch norm around a shortcut."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(8, 8, 3, padding=1, bias=False) for _ in range(2))
        self.norms = nn.ModuleList(nn.BatchNorm2d(8) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.norms[0](self.first(x)))
        return torch.relu(x + self.norms[1](self.second(y)))


MODELS = {
    "mlp": lambda: (nn.Sequential(nn.Linear(20, 48), nn.GELU(), nn.Linear(48, 9)), torch.randn(5, 20)),
    "bert_layer": lambda: (
        nn.TransformerEncoderLayer(32, 2, 64, activation="gelu", batch_first=True),
        torch.randn(2, 7, 32),
    ),
    "resnet_block": lambda: (ResidualBlock(), torch.randn(1, 8, 6, 6)),
}
CASES = [
    pytest.param(name, chip, id=f"{name}-{chip}", marks=() if number % 3 == turn % 3 and turn < 3 else pytest.mark.full)
    for number, name in enumerate(MODELS)
    for turn, chip in enumerate(CHIPS)
]


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory):
    """Make an artifact of a model; returns its path, an input and what eager computes. That of the MLP is for all."""
    folder, made = tmp_path_factory.mktemp("amdgpu_models"), {}

    def make(name, chip):
        targets = ["native", "sm_80", *CHIPS] if name == "mlp" else [chip]
        key = name, *targets
        if key not in made:
            torch.manual_seed(0)
            model, x = MODELS[name]()
            with torch.no_grad():
                expected = model.eval()(x).numpy()
                exported = torch.export.export(model, (x,))
            path = folder / f"{name}-{chip}.lamina"
            lamina.export(exported, targets=targets).save(path)
            made[key] = path, x.numpy(), expected
        return made[key]

    return make


@pytest.mark.parametrize(("name", "chip"), CASES)
def test_models_equal_eager(name, chip, artifacts, monkeypatch, tmp_path):
    path, x, expected = artifacts(name, chip)
    fake = FakeHip(chip).install(monkeypatch, tmp_path)
    model = lamina.load(path, device="hip:0")
    assert model.target == chip
    np.testing.assert_allclose(np.asarray(model(x)), expected, rtol=2e-5, atol=2e-5)
    assert fake.launches


def test_one_file_for_a_cpu_and_gpus(artifacts):
    path, x, expected = artifacts("mlp", "gfx942")
    np.testing.assert_allclose(lamina.load(path)(x), expected, rtol=2e-5, atol=2e-5)
    shown = CliRunner().invoke(inspect_command, [str(path)]).output
    for target in ("sm_80", *CHIPS):
        assert re.search(rf"{target}: \d+ launches, [\d.]+ kB of code", shown), shown


def test_a_file_says_what_it_has_for_a_gpu(artifacts, monkeypatch, tmp_path):
    path, *_ = artifacts("mlp", "gfx942")
    FakeHip("gfx1030").install(monkeypatch, tmp_path)
    with pytest.raises(ArtifactError, match="the code is for gfx942, and hip:0 .* cannot run it; compile for gfx1030"):
        lamina.load(path, device="hip:0")
    with pytest.raises(ArtifactError, match="has no code for 'gfx906'; it has .*gfx1201"):
        lamina.load(path, device="hip:0", target="gfx906")
    with pytest.raises(ArtifactError, match="gfx942 is for GPUs .load it with device='hip:0'."):
        lamina.load(path, target="gfx942")
