"""A torch built for ROCm: its device type is "cuda", and the GPU behind it AMD's."""

from types import SimpleNamespace

import pytest
import torch
from support.fake_hip import FakeHip

from lamina.frontend import cuda_launcher
from lamina.targets import get_target


@pytest.fixture
def rocm(monkeypatch, tmp_path):
    """Stand-ins for what torch says on a machine with one MI300."""
    name = "gfx942:sramecc+:xnack-"
    monkeypatch.setattr(torch.version, "hip", "6.4")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: SimpleNamespace(gcnArchName=name))
    monkeypatch.setattr(cuda_launcher, "target_for", cuda_launcher.target_for.__wrapped__)
    return FakeHip("gfx942", full_name=name).install(monkeypatch, tmp_path)


def test_the_target_is_that_of_the_gpu(rocm):
    assert get_target(cuda_launcher.target_for(0)).device == "hip"


def test_the_driver_is_hip(rocm):
    device = cuda_launcher.gpu(0)
    assert (device.kind, device.chip) == ("hip", "gfx942")
    device.require(cuda_launcher.target_for(0))
