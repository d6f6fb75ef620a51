"""When the code of a program leaves the device, on a fake driver."""

import gc

import numpy as np
import pytest
from support.fake_cuda import FakeDriver

import lamina
from lamina.compiler import artifact
from lamina.compiler.api import compile_graph, show_ir
from lamina.dialects.record import Graph, TensorType
from lamina.runtime.gpu_array import DeviceArray


def softmaxes():
    graph = Graph()
    y = graph.add("softmax", graph.add_input("x", TensorType("f32", (12, 70))), dim=0)
    graph.add_output(graph.add("softmax", y, dim=1))
    return graph


@pytest.fixture
def load(monkeypatch, tmp_path):
    """`load()`: the model, after `calls` calls; `load.fake` is the driver under all of them."""
    path = artifact.save(tmp_path / "m.lamina", {"sm_90a": compile_graph(softmaxes(), "sm_90a")}, {}, {})
    fake = FakeDriver(show_ir(softmaxes(), "loops", "sm_90a")).install(monkeypatch)

    def make(calls, graphs=False):
        model = lamina.load(path, device="cuda:0", graphs=graphs)
        array = DeviceArray.of(model.device, np.ones((12, 70), np.float32), 0)
        for _ in range(calls):
            model(array)
        return model

    make.fake = fake
    return make


@pytest.mark.parametrize("graphs", [False, True])
def test_it_is_unloaded_when_the_next_is_loaded(graphs, load):
    model, fake = load(3, graphs), load.fake
    loaded = fake.calls.count("cuModuleLoadData")
    del model
    gc.collect()
    assert "cuModuleUnload" not in fake.calls and loaded
    kept = load(1)
    assert fake.calls.count("cuModuleUnload") == loaded
    assert fake.calls.index("cuThreadExchangeStreamCaptureMode") < fake.calls.index("cuModuleUnload")
    load(1)
    assert fake.calls.count("cuModuleUnload") == loaded and kept.program


@pytest.mark.parametrize("calls", [1, 3])  # launched by Python, and natively
def test_it_stays_where_a_stream_captured_it(calls, load):
    model, fake = load(calls - 1), load.fake
    fake.capturing = True
    model(DeviceArray.of(model.device, np.ones((12, 70), np.float32), 0))
    fake.capturing = False
    del model
    gc.collect()
    load(1)
    assert "cuModuleUnload" not in fake.calls
