"""A torch built for ROCm: its device type is "cuda", and the GPU behind it AMD's."""

from types import SimpleNamespace

import pytest
import torch
from support import amdgpu_code
from support.fake_hip import Anywhere, FakeHip
from torch._subclasses import FakeTensorMode

from lamina.frontend.calls import cuda_launcher
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


def block(x, w, b):
    y = torch.nn.functional.linear(x, w, b)
    return torch.softmax(torch.nn.functional.gelu(y), -1) + x.sum(-1, keepdim=True)


class Loaded(Exception):
    """Where a call would need torch's own device."""


@pytest.mark.skipif(bool(amdgpu_code.MISSING), reason=f"needs {amdgpu_code.MISSING}")
@pytest.mark.parametrize("symbolic", [False, True])
def test_torch_compile_goes_to_the_gpu(rocm, monkeypatch, symbolic):
    """Dynamo captures tensors on a GPU that torch only pretends to have; what was loaded runs on tensors of the host."""
    loaded, load = [], cuda_launcher.load

    def stop(*args):
        raise Loaded

    monkeypatch.setattr(torch.cuda, "init", lambda: None)
    monkeypatch.setattr(cuda_launcher, "load", lambda *given: loaded.append(load(*given)) or stop)
    monkeypatch.setattr(cuda_launcher, "current_stream", lambda index: 0)
    shapes = (70, 64), (96, 64), (96,)
    torch._dynamo.reset()
    with FakeTensorMode(), torch.no_grad(), pytest.raises(Loaded):
        torch.compile(block, backend="lamina", dynamic=symbolic)(
            *(torch.empty(s, device="cuda:0", dtype=torch.float16) for s in shapes)
        )
    (native,) = loaded
    assert native.device == torch.device("cuda", 0) and native.program.manifest["target"] == "gfx942"
    rocm.memory, native.device = Anywhere(), torch.device("cpu")
    given = [torch.randn(s).half() for s in shapes]
    (made,) = native._call(tuple(given))
    torch.testing.assert_close(made, block(*given), rtol=2e-2, atol=2e-2)
    assert any(name.startswith("v_mfma") for name in rocm.executed)
