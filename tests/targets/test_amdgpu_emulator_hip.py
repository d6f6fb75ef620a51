"""The runtime's HIP driver on the stub of libamdhip64, whose launches run in the emulator."""

import ctypes
from pathlib import Path

import numpy as np
import pytest
from support import amdgpu_code
from support.fake_hip import OUT_OF_MEMORY, FakeHip

from lamina.runtime.errors import DeviceError
from lamina.runtime.gpu import hip
from lamina.runtime.gpu.drivers import Memory

pytestmark = pytest.mark.skipif(bool(amdgpu_code.MISSING), reason=f"needs {amdgpu_code.MISSING}")

SCALE = """
define amdgpu_kernel void @scale(ptr addrspace(1) noalias %o, ptr addrspace(1) noalias %a, float %s, i64 %n) #0 {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %w = call i32 @llvm.amdgcn.workgroup.id.x()
  %start = mul i32 %w, 64
  %i = add i32 %start, %t
  %wide = zext i32 %i to i64
  %in = icmp ult i64 %wide, %n
  br i1 %in, label %do, label %done
do:
  %p = getelementptr float, ptr addrspace(1) %a, i64 %wide
  %v = load float, ptr addrspace(1) %p
  %r = fmul float %v, %s
  %q = getelementptr float, ptr addrspace(1) %o, i64 %wide
  store float %r, ptr addrspace(1) %q
  br label %done
done:
  ret void
}
declare i32 @llvm.amdgcn.workitem.id.x()
declare i32 @llvm.amdgcn.workgroup.id.x()
attributes #0 = { "amdgpu-flat-work-group-size"="64,64" }
"""


@pytest.fixture
def fake(monkeypatch, tmp_path):
    return FakeHip("gfx1100").install(monkeypatch, tmp_path)


def test_the_library_that_is_loaded_is_taken(fake, monkeypatch, tmp_path):
    (loaded,) = hip._LIBRARIES
    other = tmp_path / "other.so"
    other.write_bytes(Path(loaded).read_bytes())
    monkeypatch.setattr(hip, "_LIBRARIES", (str(other), loaded))
    assert hip._library()._name == loaded


def run(device, count, size):
    """0.5·x on the device, for `count` elements in buffers of `size`."""
    x = np.arange(count).astype("f")
    a, o = Memory(device, 4 * size), Memory(device, 4 * size)
    device.copy(a.pointer, x.ctypes.data, 4 * min(count, size))
    f = device.module([amdgpu_code.compile_ir(SCALE, "gfx1100")], "scale").function("scale")
    values = [ctypes.c_uint64(o.pointer), ctypes.c_uint64(a.pointer), ctypes.c_float(0.5), ctypes.c_int64(count)]
    parameters = (ctypes.c_void_p * 4)(*map(ctypes.addressof, values))
    code = device.driver_function("LaunchKernel")(f, -(-count // 64), 1, 1, 64, 1, 1, 0, None, parameters, None)
    device.check(code, "launching")
    device.synchronize()
    y = np.empty_like(x)
    device.copy(y.ctypes.data, o.pointer, 4 * count)
    return x, y


def test_a_kernel_runs_on_device_memory(fake):
    device = hip.device(0)
    assert (device.chip, device.name) == ("gfx1100", "a fake AMD GPU")
    x, y = run(device, 100, 100)
    np.testing.assert_array_equal(y, x * np.float32(0.5))
    assert fake.launches == [("scale", (2, 1, 1), 0)] and fake.executed["v_mul_f32"] == 4
    assert not fake.blocks  # freed


def test_what_the_emulator_refuses_is_the_error_of_the_launch(fake):
    with pytest.raises(DeviceError, match=r"launching: .*global_load_b32.*out of bounds.*lane 16 of wave 2"):
        run(hip.device(0), 100, 80)


def test_code_for_another_chip_is_refused(fake):
    with pytest.raises(DeviceError, match="compile for gfx1100"):
        hip.device(0).module([amdgpu_code.compile_ir(SCALE, "gfx942")], "scale")
    with pytest.raises(DeviceError, match="compile for gfx1100"):
        hip.device(0).module([b"no code" * 10], "scale")


def test_failing_calls_say_what_failed(fake):
    device = hip.device(0)
    fake.fail["hipMallocFromPoolAsync"] = OUT_OF_MEMORY
    with pytest.raises(DeviceError, match=r"allocating 64 bytes.*out of memory; free device memory"):
        Memory(device, 64)


def test_no_device(monkeypatch, tmp_path):
    FakeHip(devices=0).install(monkeypatch, tmp_path)
    with pytest.raises(DeviceError, match="no device hip:0; this machine has 0"):
        hip.device(0)
