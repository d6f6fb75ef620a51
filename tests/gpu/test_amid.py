"""Finalizers amid calls on GPUs: what is called there, and that it leaves the thread's device as it was."""

import gc

import numpy as np
import pytest
from support.amid import amid
from support.fake_cuda import CONTEXT, FakeDriver

import lamina
from lamina.compiler import artifact
from lamina.compiler.api import compile_graph, show_ir
from lamina.dialects.record import Graph, TensorType
from lamina.runtime.gpu import cuda
from lamina.runtime.gpu.array import DeviceArray
from lamina.runtime.gpu.drivers import Memory
from lamina.runtime.gpu.pending import Pending

pytestmark = pytest.mark.timeout(300)  # a deadlock is a failure


def test_a_model_is_called_amid_a_call(tmp_path, monkeypatch):
    """Both have launches of their own: one that is laid out does not get the other's pointers."""
    graph = Graph()
    x = graph.add_input("x", TensorType("f32", (2, 4)))
    graph.add_output(graph.add("neg", x))
    path = artifact.save(tmp_path / "m.lamina", {"sm_90a": compile_graph(graph, "sm_90a")}, {}, {})
    fake = FakeDriver(show_ir(graph, "loops", "sm_90a")).install(monkeypatch)
    model = lamina.load(path, device="cuda:0")
    monkeypatch.setattr(fake, "_run", lambda f, grid, block, stream, values: values and launched.append(values))
    launched = []
    a, b = (DeviceArray.of(model.device, np.full((2, 4), n, np.float32), 0) for n in (1, 2))
    call = model._caller.general  # the native entry makes nothing that is collected
    call(0, a)
    with amid(lambda: call(0, b)) as done:
        for _ in range(20):
            call(0, a)
    read = [values[0] for values in launched]
    assert (read.count(a.pointer), read.count(b.pointer)) == (21, len(done))


def test_devices_are_opened_amid_an_opening(monkeypatch):
    fake = FakeDriver(devices=2).install(monkeypatch)
    with amid(lambda: "cuDeviceGet" in fake.calls and (cuda.device(0), cuda.device(1))):
        opened = cuda.device(1)
    assert opened is cuda.device(1)


def test_work_is_waited_for_amid_waiting(monkeypatch):
    FakeDriver().install(monkeypatch)
    pending = Pending(cuda.device(0))

    def work():
        pending.keep([], 0)
        pending.drop()

    with amid(work):
        for _ in range(50):
            work()
    pending.drop()
    assert not pending._kept


def test_memory_that_goes_leaves_the_current_device(monkeypatch):
    """In a cycle it goes at any time: also between the launches of another device's model."""
    fake = FakeDriver(devices=2).install(monkeypatch)
    first, second = cuda.device(0), cuda.device(1)
    block = Memory(first, 64, 0)
    cycle = [block]
    cycle.append(cycle)
    with second.use():
        del block, cycle
        gc.collect()
        assert "cuMemFreeAsync" in fake.calls and fake.current == CONTEXT + 1
    assert not fake.current
