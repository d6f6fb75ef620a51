"""What the CUDA runtime asks of its driver, and its errors, on a fake driver."""

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from support.fake_cuda import CONTEXT, FakeDriver

import lamina
from lamina.compiler.api import compile_graph
from lamina.dialects.record import Graph, TensorType
from lamina.runtime.errors import DeviceError, DeviceMemoryError, NoDeviceError, OldDriverError, WrongDeviceError
from lamina.runtime.gpu import cuda
from lamina.runtime.gpu.image import unpack
from lamina.runtime.gpu.program import GpuProgram
from lamina.targets.gpu_container import pack
from lamina.tools.targets import targets_command


@pytest.fixture(scope="module")
def compiled():
    graph = Graph()
    graph.add_output(graph.add("exp", graph.add_input("x", TensorType("f32", (64,)))))
    return compile_graph(graph, "sm_80")


def without_cubins(image):
    """The image as it is where there is no ptxas."""
    header, kernels = unpack(image)
    stripped = []
    for kernel in kernels:
        described, (ptx, _) = unpack(kernel)
        stripped.append(pack(described, [ptx, b""]))
    return pack(header, stripped)


def load(compiled):
    program = GpuProgram(compiled.manifest, without_cubins(compiled.image), cuda.device(0))
    program.walk(())
    return program


def test_the_driver_compiles_a_kernel_once(compiled, monkeypatch, tmp_path):
    monkeypatch.setenv("LAMINA_CACHE_DIR", str(tmp_path))
    for links in (1, 0):
        fake = FakeDriver().install(monkeypatch)
        load(compiled)
        assert fake.calls.count("cuLinkComplete") == links and fake.calls.count("cuModuleLoadData") == 1


def test_what_others_could_have_written_is_not_loaded(compiled, monkeypatch, tmp_path):
    monkeypatch.setenv("LAMINA_CACHE_DIR", str(tmp_path))
    FakeDriver().install(monkeypatch)
    load(compiled)
    (file,) = tmp_path.glob("cubins/*/*")
    file.parent.chmod(0o777)
    fake = FakeDriver().install(monkeypatch)
    load(compiled)
    assert fake.calls.count("cuLinkComplete") == 1


@pytest.mark.parametrize(
    ("function", "code", "kind", "message"),
    [
        ("cuLinkComplete", 222, OldDriverError, "too old for the PTX of kernel 'exp_"),
        ("cuModuleLoadData", 1, DeviceError, "loading kernel 'exp_.*CUDA error 1"),
        ("cuMemHostAlloc", 2, DeviceMemoryError, "free device memory"),
    ],
)
def test_errors_of_the_driver_have_classes(function, code, kind, message, compiled, monkeypatch, tmp_path):
    monkeypatch.setenv("LAMINA_CACHE_DIR", str(tmp_path))
    fake = FakeDriver().install(monkeypatch)
    fake.fail[function] = code
    with pytest.raises(kind, match=message) as raised:
        load(compiled)
    assert raised.value.code == code and isinstance(raised.value, RuntimeError)


def test_a_device_that_does_not_fit_is_named(compiled, monkeypatch):
    FakeDriver(capability=(7, 5)).install(monkeypatch)
    with pytest.raises(NoDeviceError, match="no device cuda:3; this machine has 1 NVIDIA GPU"):
        cuda.device(3)
    with pytest.raises(WrongDeviceError, match="too old; compute capability 8.0"):
        load(compiled)


def test_an_input_on_another_device_is_named(compiled, monkeypatch, tmp_path):
    fake = FakeDriver(devices=2).install(monkeypatch)
    assert cuda.device(1).context == CONTEXT + 1

    class Elsewhere:
        def __dlpack_device__(self):
            return 2, 0

        def __dlpack__(self, stream=None):
            raise AssertionError("it is not looked at")

    path = tmp_path / "m.lamina"
    program = torch.export.export(torch.nn.ReLU(), (torch.ones(64),))
    lamina.export(program, targets=["sm_80"]).save(path)
    model = lamina.load(path, device="cuda:1")
    assert model.device.index == 1
    with pytest.raises(WrongDeviceError, match="on cuda:0, the model on cuda:1"):
        model(Elsewhere())
    fake.fail["cuMemAllocFromPoolAsync"] = 2
    with pytest.raises(DeviceMemoryError):
        model(np.ones(64, np.float32))


def test_targets_say_which_gpus_run_them(monkeypatch):
    FakeDriver(devices=2).install(monkeypatch)
    lines = {line.split()[0]: line for line in CliRunner().invoke(targets_command).output.splitlines()}
    assert "yes: cuda:0 (a fake, compute capability 9.0, driver for CUDA 13.0), cuda:1" in lines["sm_90a"]
    FakeDriver(capability=(8, 6)).install(monkeypatch)
    lines = {line.split()[0]: line for line in CliRunner().invoke(targets_command).output.splitlines()}
    assert "yes: cuda:0" in lines["sm_80"] and "no: the code is for sm_90a" in lines["sm_90a"]
