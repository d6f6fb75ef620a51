"""Runs under qemu: an artifact for a GPU, launched by this host's native entry on a driver of Python functions.

    python gpu_guest.py ARTIFACT

Its one kernel doubles 64 floats. Prints as JSON how often Python had to launch and the driver's calls of the last call.
"""

import ctypes
import json
import sys

import numpy as np

import lamina
from lamina.runtime.gpu import cuda
from lamina.runtime.gpu.array import DeviceArray

P, I, U, Z = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint, ctypes.c_size_t
N = 64


class Driver:
    """The functions of libcuda: those without a method here do nothing and succeed."""

    types = {
        "cuDeviceGetCount": (P,),
        "cuDeviceGetAttribute": (P, I, I),
        "cuCtxGetCurrent": (P,),
        "cuMemHostAlloc": (P, Z, U),
        "cuMemHostGetDevicePointer_v2": (P, P, U),
        "cuMemAllocFromPoolAsync": (P, Z, P, P),
        "cuMemcpyAsync": (P, P, Z, P),
        "cuModuleGetFunction": (P, P, P),
        "cuLaunchKernel": (P, *[U] * 7, P, P, P),
    }

    def __init__(self):
        self.calls, self.blocks = [], []

    def __getattr__(self, name):
        function = getattr(type(self), "_" + name, lambda self, *given: None)

        def call(*given):
            self.calls.append(name)
            return function(self, *given) or 0

        made = ctypes.CFUNCTYPE(I, *self.types.get(name, ()))(call)
        setattr(self, name, made)
        return made

    def _cuDeviceGetCount(self, to):
        I.from_address(to).value = 1

    def _cuDeviceGetAttribute(self, to, number, device):
        I.from_address(to).value = {75: 9, 76: 0}.get(number, 4)

    def _cuCtxGetCurrent(self, to):
        P.from_address(to).value = 0

    def _cuMemAllocFromPoolAsync(self, to, size, pool, stream):
        self.blocks.append(ctypes.create_string_buffer(size + 64))
        P.from_address(to).value = -(-ctypes.addressof(self.blocks[-1]) // 64) * 64

    def _cuMemHostAlloc(self, to, size, flags):
        self._cuMemAllocFromPoolAsync(to, size, None, None)

    def _cuMemHostGetDevicePointer_v2(self, to, address, flags):
        P.from_address(to).value = address

    def _cuMemcpyAsync(self, to, source, size, stream):
        ctypes.memmove(to, source, size)

    def _cuModuleGetFunction(self, to, module, name):
        P.from_address(to).value = 1

    def _cuLaunchKernel(self, f, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra):
        x, y = (P.from_address(P.from_address(parameters + 8 * i).value).value for i in range(2))
        floats = ctypes.c_float * N
        floats.from_address(y)[:] = [2 * v for v in floats.from_address(x)]


driver = Driver()
cuda.driver = lambda: driver
model = lamina.load(sys.argv[1], device="cuda:0")
general, slow = model._caller.general, []
model._caller.general = lambda *given: slow.append(given) or general(*given)
for number in range(4):
    x = DeviceArray.of(model.device, np.arange(N, dtype=np.float32) + number, 0)
    driver.calls.clear()
    y = model(x)
    seen = list(driver.calls)
    np.testing.assert_array_equal(np.asarray(y), np.asarray(x) * 2)
print(json.dumps({"slow": len(slow), "calls": seen}))
