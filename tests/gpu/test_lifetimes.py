"""Drivers that are missing, too old, gone or shut down, and what ends in which order."""

import ctypes
import gc
import subprocess
import sys
from pathlib import Path

import pytest
from support.fake_cuda import FakeDriver
from support.hang import HANG

from lamina.runtime.errors import DeviceError, DeviceMemoryError, NoDeviceError, OldDriverError
from lamina.runtime.gpu import cuda, hip
from lamina.runtime.gpu.drivers import Memory, StatusWords
from lamina.runtime.gpu.pending import Pending


class Library:
    """A driver's library with a few functions, each of which returns a number."""

    def __init__(self, **codes):
        made = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)
        for name, code in codes.items():
            setattr(self, name, made(lambda _, code=code: code))


@pytest.mark.parametrize(
    ("driver", "library", "kind", "message"),
    [
        (cuda, None, NoDeviceError, "no NVIDIA driver here: nothing there"),
        (hip, None, NoDeviceError, "no HIP library here: nothing there; install ROCm"),
        (cuda, Library(cuInit=100), NoDeviceError, r"cannot start \(error 100\); is there a GPU"),
        (hip, Library(hipInit=100), NoDeviceError, r"cannot start \(error 100\); is there an AMD GPU"),
        (cuda, Library(cuInit=0), OldDriverError, "too old; version 11.2 of CUDA or newer"),
        (hip, Library(hipInit=0), OldDriverError, "too old .*; ROCm 6.0 or newer"),
    ],
)
def test_a_driver_that_cannot_be_used_says_why(driver, library, kind, message, monkeypatch):
    def found(name, mode=0):
        if library is None:
            raise OSError("nothing there")
        return library

    monkeypatch.setattr(ctypes, "CDLL", found)
    with pytest.raises(kind, match=message):
        driver.driver.__wrapped__()


@pytest.mark.parametrize(
    ("code", "kind", "message"),
    [
        (2, DeviceMemoryError, "free device memory or make the problem smaller"),
        (3, DeviceError, "a forked process cannot use its parent's GPU; .*'spawn'"),
        (4, DeviceError, "the driver has shut down"),
        (201, DeviceError, "context is gone: .* start a new process"),
        (709, DeviceError, "context is gone: .* start a new process"),
        (719, DeviceError, "the device takes no more work from it; start a new process"),
        (1, DeviceError, r" \(CUDA error 1\)$"),
    ],
)
def test_errors_say_what_to_do(code, kind, message, monkeypatch):
    FakeDriver().install(monkeypatch)
    with pytest.raises(kind, match=f"launching: an error.*{message}") as raised:
        cuda.device(0).check(code, "launching")
    assert raised.value.code == code


# a process that ends while a model, its graph, results, sessions and threads are alive, on a driver that ended before it
ENDING = """
import sys, threading, time
sys.path.insert(0, {tests!r})
import numpy as np
from support.fake_cuda import FakeDriver
import lamina
from lamina.compiler import artifact
from lamina.compiler.api import compile_graph, show_ir
from lamina.dialects.record import Graph, TensorType
from lamina.runtime.gpu import cuda
from lamina.runtime.gpu.array import DeviceArray

graph = Graph()
x = graph.add_input("x", TensorType("f32", (4, 20)))
graph.add_output(graph.add("sub", x, graph.add("sum", x, dims=(0,), keepdim=True)))
fake = FakeDriver(show_ir(graph, "loops", "sm_90a"))
cuda.driver = lambda: fake
path = artifact.save({path!r}, {{"sm_90a": compile_graph(graph, "sm_90a")}}, {{}}, {{}})
model = lamina.load(path, device="cuda:0", graphs=True)
arrays = [DeviceArray.of(model.device, np.ones((4, 20), np.float32), 0)]
results = [model(*arrays) for _ in range(4)]
assert "cuGraphLaunch" in fake.calls
fake._run, fake._values = lambda *given: None, lambda *given: []  # MLIR's bindings do not survive a thread's end in them

def work():
    while True:
        results.append(model(*arrays))

threading.Thread(target=work, daemon=True).start()
time.sleep(0.2)
fake.fail = dict.fromkeys(("cuMemFreeAsync", "cuMemFreeHost", "cuGraphExecDestroy", "cuGraphDestroy", "cuCtxSetCurrent"), 4)
print("done")
"""


def test_a_process_may_end_with_all_alive(tmp_path):
    script = ENDING.format(tests=str(Path(__file__).parents[1]), path=str(tmp_path / "m.lamina"))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=HANG)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr[-2000:]


def test_what_goes_late_goes_to_the_driver_it_came_from(monkeypatch):
    """The stub of a later test has no such memory."""
    first = FakeDriver().install(monkeypatch)
    block, words = Memory(cuda.device(0), 64), StatusWords(cuda.device(0), 1)
    second = FakeDriver().install(monkeypatch)
    del block, words
    assert first.calls[-1] == "cuMemFreeHost" and "cuMemFreeAsync" in first.calls
    assert not second.calls


class Read:
    """What work on the device reads: it notes when it goes."""

    def __init__(self, calls):
        self.calls = calls

    def __del__(self):
        self.calls.append("gone")


def test_what_is_read_stays_until_its_readers_are_done(monkeypatch):
    """Also where the collector ends it all: that finalizes what is in a cycle in any order."""
    gc.collect()  # other tests' garbage
    fake = FakeDriver().install(monkeypatch)
    read = [Read(fake.calls) for _ in range(3)]
    pending = Pending(cuda.device(0))
    while read:
        pending.keep(read.pop(), 0)
    cycle = [pending]
    cycle.append(cycle)
    del pending, cycle
    gc.collect()
    ended = [name for name in fake.calls if name in ("cuEventSynchronize", "cuEventDestroy_v2", "gone")]
    assert [ended[i] for i in (0, 3, 6)] == ["cuEventSynchronize"] * 3
    assert [sorted(ended[i : i + 3]) for i in (0, 3, 6)] == [
        sorted(("cuEventSynchronize", "cuEventDestroy_v2", "gone"))
    ] * 3
