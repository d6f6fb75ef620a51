"""A finalizer may call us amid a call of ours, on the same thread: no lock is waited for, and no state is half-made."""

import numpy as np
import pytest
from support.amid import amid

import lamina

from .conftest import Function, S

pytestmark = pytest.mark.timeout(300)  # a deadlock is a failure
X = np.arange(4, dtype=np.float32)


@pytest.fixture
def scaled(saved, compiled):
    """y = x * w"""
    f = Function((4,))
    program = compiled(f, [("y", f.call("mul", f.input("x"), f.weight("w")), "")], symbols=[])
    return lamina.load(saved({"main": program}, {"w": np.ones(4, np.float32)}))


def test_weights_are_swapped_amid_a_swap(scaled):
    with amid(lambda: scaled.swap_weights({"w": X})):
        scaled.swap_weights({"w": X})
    np.testing.assert_array_equal(scaled(X), X * X)


def test_a_model_is_called_amid_a_call(saved, compiled):
    f = Function((S,))
    model = lamina.load(saved({"main": compiled(f, [("y", f.call("twice", f.input("x")), "")])}))
    sizes = iter(range(1, 100_000))
    with amid(lambda: model(np.ones(next(sizes) % 50, np.float32))):  # known sizes and new ones
        for n in range(40):
            np.testing.assert_array_equal(model(np.ones(n, np.float32)), np.full(n, 2, np.float32))


def test_a_session_is_called_amid_a_call(saved, compiled):
    """Each call of either counts once."""
    f = Function((4,))
    new = f.call("increment", f.input("state"))
    program = compiled(f, [("y", f.call("add", new, f.input("x")), ""), ("new", new, "state")], symbols=[])
    path = saved({"main": program}, {"start": np.zeros(4, np.float32)}, {"main": {"state": "start"}})
    session = lamina.load(path).session()
    with amid(lambda: session(X)) as done:
        for _ in range(20):
            session(X)
    assert session.state["state"].tolist() == [20 + len(done)] * 4
