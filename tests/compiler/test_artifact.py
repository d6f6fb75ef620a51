"""A graph compiled, saved and loaded again."""

import numpy as np
import pytest

import lamina
from lamina.compiler import artifact
from lamina.compiler.api import compile_graph
from lamina.compiler.options import Options
from lamina.dialects.dims import symbol
from lamina.dialects.record import Graph, Symbol, TensorType


@pytest.fixture(scope="module")
def graph():
    """y = x * w + state, and state takes y's place."""
    s = symbol("batch")
    g = Graph(symbols=[Symbol("batch", 1, 64, 1, 0, 0)])
    x = g.add_input("x", TensorType("f32", (s, 4)))
    w = g.add_input("w", TensorType("f32", (4,)), "weight")
    state = g.add_input("state", TensorType("f32", (4,)))
    g.add_output(g.add("add", g.add("mul", x, w), state), "y")
    g.add_output(g.add("add", state, w), "new", mutates="state")
    return g


def test_compile_save_load(graph, tmp_path, monkeypatch):
    monkeypatch.setenv("LAMINA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("LAMINA_INPROCESS", "1")
    program = compile_graph(graph, "native", Options(plain=True))
    w, start = np.arange(4, dtype=np.float32), np.ones(4, np.float32)
    path = artifact.save(tmp_path / "m.lamina", {"native": program}, {"w": w}, {"state": start})
    model = lamina.load(path)
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    session = model.session()
    np.testing.assert_array_equal(session(x), x * w + start)
    np.testing.assert_array_equal(session(x), x * w + (start + w))
    np.testing.assert_array_equal(model(x), x * w + start)
    assert repr(model).startswith("<lamina main(x: f32[batch, 4]) for x86-64")


def test_a_result_has_its_shape_and_not_that_of_the_launch_that_makes_it(tmp_path):
    """The last kernel makes twelve elements; the result is a view of all of them, four times three."""
    g = Graph()
    flat = g.add("reshape", g.add_input("x", TensorType("f32", (3, 4))), shape=(12,))
    g.add_output(g.add("reshape", g.add("flip", flat, dims=(0,)), shape=(4, 3)), "y")
    model = lamina.load(artifact.save(tmp_path / "m.lamina", {"native": compile_graph(g)}, {}, {}))
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    for out in (None, np.empty((4, 3), np.float32), None):
        np.testing.assert_array_equal(model(x, out=out), x.reshape(-1)[::-1].reshape(4, 3))
