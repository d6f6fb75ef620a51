"""`lamina.load` as a function of arrays: every kind of argument, results, state, weights, and its errors."""

import copy
import pickle
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import lamina
from lamina.runtime.errors import LaminaRuntimeError

from .conftest import Function, S

SYMBOL = {"name": "s0", "min": 2, "max": 64, "multiple_of": 2, "input": 0, "dim": 0}


@pytest.fixture(scope="module")
def model(saved, compiled):
    """y = x + z, d = 2 y, t = y transposed; sizes (s0, 4)."""
    f = Function((S, 4))
    y = f.call("add", f.input("x"), f.input("z"))
    t = f.view(y, "permute", (4, S), dims=(1, 0))
    program = compiled(f, [("y", y, ""), ("d", f.call("twice", y), ""), ("t", t, "")], symbols=[SYMBOL])
    return lamina.load(saved({"main": program}))


@pytest.fixture(scope="module")
def simple(saved, compiled):
    """y = x * w + x."""
    f = Function((S,))
    x = f.input("x")
    y = f.call("add", f.call("mul", x, f.weight("w")), x)
    f.plan.weights["w"].type = type(f.type)("f32", (8,))
    return lamina.load(saved({"main": compiled(f, [("y", y, "")])}, {"w": np.arange(8, dtype=np.float32)}))


X = np.arange(16, dtype=np.float32).reshape(4, 4)


def test_several_results(model):
    for _ in range(2):  # the first call learns the shapes
        y, d, t = model(X, X)
        np.testing.assert_array_equal(y, 2 * X)
        np.testing.assert_array_equal(d, 4 * X)
        np.testing.assert_array_equal(t, 2 * X.T)


def test_names(model):
    np.testing.assert_array_equal(model(z=X, x=np.zeros_like(X))[0], X)
    np.testing.assert_array_equal(model(X, z=X)[0], 2 * X)
    assert model.inputs == ("x", "z") and model.outputs == ("y", "d", "t")
    assert repr(model) == "<lamina main(x: f32[s0, 4], z: f32[s0, 4]) for test>"


@pytest.mark.parametrize(
    "array",
    [
        np.asfortranarray(X),
        np.arange(32, dtype=np.float32).reshape(4, 8)[:, ::2],
        X.astype(">f4"),
        np.frombuffer(b"\0" + X.tobytes(), np.float32, 16, 1).reshape(4, 4),
        X[::-1],
        np.broadcast_to(X[0], (4, 4)),
        X.view(np.memmap),
    ],
    ids="fortran strided byteorder misaligned reversed broadcast subclass".split(),
)
def test_arrays_that_need_care(model, array):
    for _ in range(2):
        np.testing.assert_array_equal(model(array, X)[0], array + X)
        np.testing.assert_array_equal(model(X, X)[0], X + X)


def test_dlpack(model):
    class Other:
        def __dlpack__(self, **arguments):
            return X.__dlpack__(**arguments)

        def __dlpack_device__(self):
            return X.__dlpack_device__()

    np.testing.assert_array_equal(model(Other(), X)[0], 2 * X)


def test_element_types_that_numpy_cannot_read(model):
    class Other:
        def __dlpack__(self, **arguments):
            raise RuntimeError("Unsupported dtype in DLTensor.")

        __dlpack_device__ = X.__dlpack_device__

    with pytest.raises(
        LaminaRuntimeError, match=r"input 'x': cannot read this Other: .* bf16: pass an array of ml_dtypes"
    ):
        model(Other(), X)


def test_out(model, simple):
    x = np.arange(8, dtype=np.float32)
    expected = x * x + x
    out = np.empty(8, np.float32)
    assert simple(x, out=out) is out
    np.testing.assert_array_equal(out, expected)
    simple(x, out=x)  # over its own input
    np.testing.assert_array_equal(x, expected)
    strided = np.zeros(16, np.float32)
    simple(np.arange(8, dtype=np.float32), out=strided[::2])
    np.testing.assert_array_equal(strided[::2], expected)
    outs = [np.empty((4, 4), np.float32) for _ in range(3)]
    y, d, t = model(X, X, out=outs)
    assert y is outs[0] and t is outs[2]
    np.testing.assert_array_equal(t, 2 * X.T)


def test_swap_weights(simple):
    x = np.ones(8, np.float32)
    w = np.full(8, 3, np.float32)
    simple.swap_weights({"w": w})
    w[:] = 100
    assert simple(x).tolist() == [4] * 8
    simple.swap_weights({"w": np.arange(8, dtype=np.float32)})
    assert simple(x).tolist() == list(range(1, 9))


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_weights_that_were_read_to_load_take_no_memory(saved, compiled):
    """Weights that are packed, or copied to a GPU, would be there twice."""
    f = Function((1 << 20,))
    y = f.call("mul", f.input("x"), f.weight("w"))
    w = np.arange(1 << 20, dtype=np.float32)
    path = saved({"main": compiled(f, [("y", y, "")], symbols=[])}, {"w": w})
    model = lamina.load(path, verify=True)  # reads them all
    assert _resident(path) < w.nbytes // 2
    np.testing.assert_array_equal(model(w), w * w)


def _resident(path):
    """Bytes of a mapped file that are in memory for this process."""
    found, inside = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first, *rest = line.split()
        if not first.endswith(":"):
            inside = rest[-1] == str(path)
        elif inside and first == "Rss:":
            found += 1024 * int(rest[0])
    return found


@pytest.fixture(scope="module")
def counter(saved, compiled):
    """state += 1 and returns 2 * the new state + x."""
    f = Function((4,))
    x, state = f.input("x"), f.input("state")
    new = f.call("increment", state)
    y = f.call("add", f.call("twice", new), x)
    program = compiled(f, [("y", y, ""), ("state_new", new, "state")], symbols=[])
    path = saved({"main": program}, {"start": np.zeros(4, np.float32)}, {"main": {"state": "start"}})
    return lamina.load(path)


def test_a_call_starts_from_the_initial_state(counter):
    x = np.zeros(4, np.float32)
    assert counter.inputs == ("x",)
    assert [counter(x)[0] for _ in range(3)] == [2, 2, 2]


def test_sessions_keep_their_own_state(counter):
    x = np.zeros(4, np.float32)
    a, b = counter.session(), counter.session()
    assert [a(x)[0] for _ in range(3)] == [2, 4, 6] and b(x=x)[0] == 2
    assert a.state["state"].tolist() == [3] * 4
    a.state["state"][:] = 10
    assert a(x)[0] == 22
    a.reset()
    assert a(x)[0] == 2 and counter(x)[0] == 2


def test_inputs_that_are_written(saved, compiled):
    f = Function((4,))
    new = f.call("increment", f.input("x"))
    model = lamina.load(
        saved({"main": compiled(f, [("y", f.call("add", new, f.input("z")), ""), ("n", new, "x")], symbols=[])})
    )
    base = np.zeros(8, np.float32)
    assert model(base[::2], np.ones(4, np.float32)).tolist() == [2] * 4  # strided: copied in and back
    assert base.tolist() == [1, 0] * 4
    x = np.zeros(4, np.float32)
    assert model(x, x).tolist() == [1] * 4 and x.tolist() == [1] * 4  # z is the old x
    x.flags.writeable = False
    with pytest.raises(LaminaRuntimeError, match="input 'x' is written to, but the array is read-only"):
        model(x, x)


def test_entries_share_weights(saved, compiled):
    f, g = Function((4,)), Function((4,))
    entries = {
        "prefill": compiled(f, [("y", f.call("add", f.input("x"), f.weight("w")), "")], symbols=[]),
        "decode": compiled(g, [("y", g.call("mul", g.input("x"), g.weight("w")), "")], symbols=[]),
    }
    path = saved(entries, {"w": np.full(4, 3, np.float32)})
    x = np.full(4, 2, np.float32)
    assert lamina.load(path, entry="prefill")(x)[0] == 5 and lamina.load(path, entry="decode")(x)[0] == 6
    with pytest.raises(LaminaRuntimeError, match="has no entry 'main'; it has decode, prefill"):
        lamina.load(path)


def test_scalar_inputs_are_ints(saved, compiled):
    from lamina.dialects.record import TensorType

    f = Function((S,))
    x = f.input("x")
    f.plan.argument("n", TensorType("i64", ()), "scalar")
    symbols = [{"name": "s0", "min": 0, "max": None, "multiple_of": 1, "input": 1, "dim": -1}]
    model = lamina.load(saved({"main": compiled(f, [("y", f.call("twice", x), "")], symbols=symbols)}))
    assert model(np.ones(3, np.float32), 3).tolist() == [2] * 3
    assert model(np.ones(2, np.float32), np.int64(2)).tolist() == [2] * 2
    with pytest.raises(LaminaRuntimeError, match="input 'n' is a float, expected an int"):
        model(np.ones(2, np.float32), 2.0)
    with pytest.raises(LaminaRuntimeError, match="has size 3 in dim 0, expected 2 .s0 where s0 = 2 from 'n'"):
        model(np.ones(3, np.float32), 2)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda m: m(X), r"got 1 inputs, expected 2: main\(x: f32\[s0, 4\], z: f32\[s0, 4\]\)"),
        (lambda m: m(X, y=X), "has no input 'y' left; inputs: x, z"),
        (lambda m: m(X, x=X), "has no input 'x' left"),
        (lambda m: m(x=X), "input 'z' is missing"),
        (lambda m: m(X.astype(np.float64), X), "input 'x' has dtype f64, expected f32; convert it"),
        (lambda m: m(X.astype(complex), X), "input 'x' has dtype complex128, expected f32"),
        (lambda m: m(X[0], X), r"input 'x' has rank 1 \(shape \(4,\)\), expected f32\[s0, 4\]"),
        (lambda m: m(X, X[:, :3]), r"input 'z' has size 3 in dim 1, expected 4; the input is f32\[s0, 4\]"),
        (lambda m: m(X, X[:2]), r"input 'z' has size 2 in dim 0, expected 4 \(s0 where s0 = 4 from 'x'\)"),
        (lambda m: m(X[:3], X[:3]), "input 'x' has size 3 in dim 0; 's0' must be a multiple of 2"),
        (lambda m: m(X[:0], X[:0]), r"input 'x' has size 0 in dim 0; 's0' must be 2..64"),
        (lambda m: m([1.0], X), "input 'x' is a list; pass a numpy array or an object with __dlpack__"),
        (lambda m: m(None, X), "input 'x' is a NoneType"),
        (lambda m: m(X, X, out=X), "out has 1 arrays, 'main' has 3 results"),
        (lambda m: m(X, X, out=[X, X, X[:2]]), r"out for 't' is f32\[2, 4\], expected f32\[4, 4\]"),
        (lambda m: m(X, X, out=[1, X, X]), "out for 'y' is no writeable numpy array"),
        (lambda m: m.swap_weights({"v": X}), "there is no weight 'v'; weights: none"),
        (lambda m: lamina.load(m.artifact.path, device="tpu"), "device 'tpu' is not supported; devices: cpu"),
    ],
)  # fmt: skip
def test_errors(model, call, message):
    with pytest.raises(LaminaRuntimeError, match=message):
        call(model)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_model_cannot_be_copied(model, copied):
    with pytest.raises(TypeError, match="a loaded model cannot be pickled or copied; load .*lamina again"):
        copied(model)


def test_wrong_swapped_weight(simple):
    with pytest.raises(LaminaRuntimeError, match=r"weight 'w' is f32\[4\], expected f32\[8\]"):
        simple.swap_weights({"w": np.zeros(4, np.float32)})


def test_threads_while_weights_are_swapped(simple):
    x, stop, wrong = np.ones(8, np.float32), threading.Event(), []

    def caller():
        while not stop.is_set():
            y = simple(x)
            if len(set(y.tolist())) != 1:
                wrong.append(y)

    simple.swap_weights({"w": np.zeros(8, np.float32)})
    callers = [threading.Thread(target=caller) for _ in range(3)]
    [t.start() for t in callers]
    for i in range(100):
        simple.swap_weights({"w": np.full(8, i, np.float32)})
    stop.set()
    [t.join() for t in callers]
    simple.swap_weights({"w": np.arange(8, dtype=np.float32)})
    assert not wrong
