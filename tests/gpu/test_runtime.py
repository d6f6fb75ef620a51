"""The GPU runtime where there is no GPU: errors, the container of code, DLPack."""

import ctypes
from types import SimpleNamespace

import pytest
import torch

import lamina
from lamina.compiler.api import compile_graph
from lamina.dialects.record import Graph, TensorType
from lamina.frontend.calls import launcher
from lamina.runtime import dlpack
from lamina.runtime.errors import ArtifactError, LaminaRuntimeError, NoDeviceError
from lamina.runtime.gpu import cuda
from lamina.runtime.gpu.image import unpack
from lamina.targets.gpu_container import pack

no_driver = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")


class FakeDevice:
    capability = (9, 0)

    def __str__(self):
        return "cuda:0 (a fake, compute capability 9.0)"


def program():
    g = Graph()
    x = g.add_input("x", TensorType("f32", (64, 256)))
    g.add_output(g.add("softmax", x, dim=1))
    return compile_graph(g, "sm_90a")


def test_an_image_holds_stages_and_ptx():
    header, kernels = unpack(program().image)
    assert header["arch"] == "sm_90a"
    (kernel,) = kernels
    described, (ptx, _) = unpack(kernel)
    assert described["stages"][0]["args"] == ["buffer:0", "buffer:1"]
    assert described["stages"][0]["name"].encode() in ptx


def test_other_bytes_are_refused():
    assert unpack(pack({"a": 1}, [b"x", b""])) == ({"a": 1}, [b"x", b""])
    with pytest.raises(ArtifactError, match="no GPU code"):
        unpack(b"\x7fELF....")


@pytest.mark.parametrize(("arch", "fits"), [("sm_80", True), ("sm_90", True), ("sm_90a", True), ("sm_100", False)])
def test_code_for_another_gpu_is_refused(arch, fits):
    if fits:
        cuda.Device.require(FakeDevice(), arch)
        return
    with pytest.raises(LaminaRuntimeError, match="compile for sm_90a"):
        cuda.Device.require(FakeDevice(), arch)


@no_driver
def test_without_a_driver_the_error_says_so():
    with pytest.raises(NoDeviceError, match="no NVIDIA driver"):
        cuda.device(0)
    with pytest.raises(LaminaRuntimeError, match="devices: cpu, cuda, cuda:N, hip, hip:N"):
        lamina.load("nothing.lamina", device="tpu")


def test_tensors_on_the_cpu_are_not_for_a_gpu():
    with pytest.raises(LaminaRuntimeError, match="move them to cuda"):
        lamina.compile(torch.neg, (torch.ones(3),), target="sm_90a")
    assert launcher.compile_part


def test_dlpack_round_trip():
    memory = (ctypes.c_float * 6)()

    class Array:
        def __dlpack_device__(self):
            return dlpack.CUDA, 0

        def __dlpack__(self, stream=None):
            return dlpack.give(ctypes.addressof(memory), (2, 3), "f32", 0, memory)

    address, shape, dtype, owner = dlpack.take(Array(), 0, 0, "x")
    assert (address, shape, dtype) == (ctypes.addressof(memory), (2, 3), "f32")
    assert len(dlpack._alive) == 1
    del owner
    assert not dlpack._alive
    with pytest.raises(LaminaRuntimeError, match="on cuda:0, the model on cuda:1"):
        dlpack.take(Array(), 1, 0, "x")


def test_a_descriptor_of_windows_is_encoded_in_im2col_mode(monkeypatch):
    """`cuTensorMapEncodeIm2col(map, type, rank, address, sizes, strides, lower, upper, channels, pixels, steps, …)`."""
    entry = {
        "type": "bf16", "box": [64, 128], "swizzle": 128, "lower": [-1, -2], "upper": [-1, -3], "steps": [2, 1],
    }  # fmt: skip
    given = []
    encode = lambda *arguments: given.extend(arguments) or 0
    monkeypatch.setattr(cuda, "driver", lambda: SimpleNamespace(cuTensorMapEncodeIm2col=encode))
    made = cuda.TensorMap(4096, entry, [64, 28, 30, 8], [128, 3584, 107520])
    expected = [9, 4, 4096, [64, 28, 30, 8], [128, 3584, 107520], [-1, -2], [-1, -3], 64, 128, [1, 2, 1, 1], 0, 3, 2, 0]
    for argument, value in zip(given, [made.address, *expected], strict=True):
        if isinstance(value, list):
            assert [ctypes.c_int(x).value for x in argument][: len(value)] == value
        else:
            assert getattr(argument, "value", argument) == value
    assert made.address % 64 == 0
