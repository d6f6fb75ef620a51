"""Native entries on an AMD GPU, of artifacts and under a torch for ROCm: launches and graphs of HIP, in the emulator."""

import ctypes

import numpy as np
import pytest
import torch
from support import amdgpu_code
from support.fake_hip import Anywhere, FakeHip

import lamina
from lamina.compiler import artifact
from lamina.compiler.api import compile_graph
from lamina.dialects.record import Graph, TensorType
from lamina.frontend.calls import cuda_entry, cuda_launcher, entry_support, launcher
from lamina.runtime.entry import addresses
from lamina.runtime.errors import DeviceMemoryError
from lamina.runtime.gpu import hip
from lamina.runtime.gpu.array import DeviceArray
from lamina.runtime.gpu.program import GpuProgram

pytestmark = pytest.mark.skipif(bool(amdgpu_code.MISSING), reason=f"needs {amdgpu_code.MISSING}")
CHIP = "gfx1100"
RNG = np.random.default_rng(0)


def chain(x):
    return torch.softmax(torch.softmax(x, 0), 1)


@pytest.fixture
def fake(monkeypatch, tmp_path):
    return FakeHip(CHIP).install(monkeypatch, tmp_path)


@pytest.fixture
def load(fake, monkeypatch, tmp_path):
    """`load(**options)`: the model of an artifact, and the list of calls that Python had to make."""
    graph = Graph()
    x = graph.add_input("x", TensorType("f32", (6, 40)))
    graph.add_output(graph.add("softmax", graph.add("softmax", x, dim=0), dim=1))
    path = artifact.save(tmp_path / "m.lamina", {CHIP: compile_graph(graph, CHIP)}, {}, {})

    def make(**options):
        model, slow = lamina.load(path, device="hip:0", **options), []
        general = model._caller.general
        monkeypatch.setattr(model._caller, "general", lambda *args: slow.append(args) or general(*args))
        return model, slow

    return make


def call(model, x):
    result = np.asarray(model(DeviceArray.of(model.device, x, 0)))
    np.testing.assert_allclose(result, chain(torch.as_tensor(x)).numpy(), rtol=1e-5)


@pytest.mark.parametrize("graphs", [False, True])
def test_an_artifact_is_launched_natively(fake, load, graphs):
    model, slow = load(graphs=graphs)
    for _ in range(4):
        fake.calls.clear()
        call(model, RNG.standard_normal((6, 40), np.float32))
    assert len(slow) == 2
    launches = fake.calls.count("hipGraphLaunch"), fake.calls.count("hipModuleLaunchKernel")
    assert launches == ((1, 0) if graphs else (0, 2))
    blocks = len(fake.blocks)
    call(model, RNG.standard_normal((6, 40), np.float32))
    assert len(fake.blocks) == blocks


def test_errors_are_raised_and_forgotten(fake, load):
    model, _ = load()
    x = RNG.standard_normal((6, 40), np.float32)
    call(model, x), call(model, x)
    array = DeviceArray.of(model.device, x, 0)
    for function in ("hipMallocFromPoolAsync", "hipModuleLaunchKernel"):
        fake.fail[function] = 2
        with pytest.raises(DeviceMemoryError, match="free device memory"):
            model(array)
        del fake.fail[function]
    call(model, x)


class FakeTorchHip:
    """The exported function of libtorch_hip that an entry calls."""

    def __init__(self):
        made = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_void_p)
        self.aoti_torch_get_current_cuda_stream = made(self._current)

    def _current(self, index, to):
        ctypes.c_uint64.from_address(to).value = 0x77
        return 0


@pytest.mark.parametrize("graphs", [False, True])
def test_a_part_under_torch_is_launched_natively(fake, monkeypatch, graphs):
    parts = []
    compile_part = launcher.compile_part
    torch._dynamo.reset()
    with monkeypatch.context() as patch:
        patch.setattr(launcher, "compile_part", lambda part, *a, **k: parts.append(part) or compile_part(part, *a, **k))
        with torch.no_grad():
            torch.compile(chain, backend="lamina")(torch.ones(6, 40))
    program = compile_graph(parts[0].graph, CHIP)
    fake.memory = Anywhere()
    monkeypatch.setattr(cuda_launcher, "current_stream", lambda index: 0x77)
    native = cuda_launcher.CudaNative(parts[0], GpuProgram(program.manifest, program.image, hip.device(0)))
    native.device = torch.device("cpu")  # where the fake device's memory is
    torch_hip = FakeTorchHip()
    found = addresses(entry_support.torch_library("cpu"), cuda_entry._TORCH) | addresses(
        torch_hip, cuda_entry._TORCH_GPU
    )
    support = entry_support.support(cuda_entry.cuda_entry_ir, "cuda_entry", found)
    entry = cuda_entry._entry(native, support, graphs).chain.call
    for _ in range(4):
        fake.calls.clear()
        x = torch.randn(6, 40)
        (made,) = entry(x)
        torch.testing.assert_close(made, chain(x))
    assert fake.calls.count("hipGraphLaunch" if graphs else "hipModuleLaunchKernel") == (1 if graphs else 2)
