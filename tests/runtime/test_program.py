"""Programs planned and run end to end: storage of results, mutation, initialisation, sizes, failures, threads."""

import threading

import numpy as np
import pytest

from lamina.runtime.errors import LaminaIndexError, LaminaRuntimeError
from lamina.runtime.program import LoadedProgram

from .conftest import Function, S


def call(program, inputs, size):
    """Run with the given float arrays (size None: no symbols); returns the results that are not written to inputs."""
    prepared = program.prepare(() if size is None else (size,))
    buffers = [np.full(b.shape, np.nan, np.float32) for b in prepared.buffers]
    program.run(prepared, [a.ctypes.data for a in inputs], [b.ctypes.data for b in buffers])
    spaces = {"output": buffers, "input": inputs}
    return [
        np.lib.stride_tricks.as_strided(
            spaces[o.space][o.index].reshape(-1)[o.offset :], o.shape, [4 * s for s in o.strides]
        )
        for o in prepared.outputs
        if o.mutates is None
    ]


@pytest.mark.parametrize("size", [0, 1, 7, 4096])
def test_chain_through_the_arena(compiled, size):
    f = Function()
    x, y = f.input("x"), f.input("y")
    a = f.call("add", x, y)
    b = f.call("mul", a, a)
    out = f.call("add", f.call("twice", b), a)
    manifest, image = compiled(f, [("out", out, "")])
    assert len(manifest["plan"]["arena"]) == 3 and len(manifest["plan"]["buffers"]) == 1
    u, v = np.random.default_rng(0).standard_normal((2, size)).astype(np.float32)
    (result,) = call(LoadedProgram(manifest, image), [u, v], size)
    a = u + v
    np.testing.assert_array_equal(result, (a * a + a * a) + a)


def test_results_that_are_views_of_one_buffer(compiled):
    f = Function((S, 4))
    y = f.call("twice", f.input("x"))
    transposed = f.view(y, "permute", (4, S), dims=(1, 0))
    row = f.view(y, "slice", (1, 4), starts=(S - 1, 0), sizes=(1, 4), steps=(1, 1))
    manifest, image = compiled(f, [("t", transposed, ""), ("row", row, ""), ("y", y, "")])
    assert len(manifest["plan"]["buffers"]) == 1
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    t, r, y = call(LoadedProgram(manifest, image), [x], 3)
    np.testing.assert_array_equal(t, 2 * x.T)
    np.testing.assert_array_equal(r, 2 * x[2:])
    assert np.shares_memory(t, r) and np.shares_memory(t, y)


def test_result_that_is_a_view_of_an_input(compiled):
    f = Function((S, 4))
    out = f.view(f.input("x"), "reshape", (4 * S,), shape=(4 * S,))
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    (result,) = call(LoadedProgram(*compiled(f, [("out", out, "")])), [x], 2)
    assert np.shares_memory(result, x) and result.tolist() == list(range(8))


def test_new_value_of_an_input_is_copied_back(compiled):
    f = Function()
    x = f.input("x")
    new = f.call("increment", x)
    manifest, image = compiled(f, [("x_new", new, "x"), ("y", f.call("twice", new), "")])
    x = np.arange(5, dtype=np.float32)
    (y,) = call(LoadedProgram(manifest, image), [x], 5)
    assert x.tolist() == [1, 2, 3, 4, 5] and y.tolist() == [2, 4, 6, 8, 10]


def test_in_place_needs_no_copy(compiled):
    f = Function()
    new = f.call("increment", f.input("x"), inplace=0)
    manifest, image = compiled(f, [("x_new", new, "x")])
    plan = manifest["plan"]
    assert not (plan["after"] or plan["before"] or plan["arena"] or plan["buffers"])
    x = np.zeros(5, np.float32)
    program = LoadedProgram(manifest, image)
    call(program, [x], 5), call(program, [x], 5)
    assert x.tolist() == [2] * 5


def test_a_new_value_made_after_the_old_was_read_is_made_in_place(compiled):
    f = Function()
    hidden, x = f.input("hidden"), f.input("x")
    y = f.call("add", hidden, x)
    new = f.call("twice", y)  # hidden is read no more
    manifest, image = compiled(f, [("hidden_new", new, "hidden"), ("y", f.call("increment", new), "")])
    plan = manifest["plan"]
    assert not plan["after"] and plan["launches"][1]["args"][-1] == ["input", 0] and len(plan["arena"]) == 1
    hidden, x = np.ones(5, np.float32), np.ones(5, np.float32)
    (y,) = call(LoadedProgram(manifest, image), [hidden, x], 5)
    assert hidden.tolist() == [4] * 5 and y.tolist() == [5] * 5


def test_swapping_two_inputs(compiled):
    f = Function()
    x, y = f.input("x"), f.input("y")
    manifest, image = compiled(f, [("x_new", y, "x"), ("y_new", x, "y")])
    u, v = np.full(3, 1, np.float32), np.full(3, 2, np.float32)
    call(LoadedProgram(manifest, image), [u, v], 3)
    assert u.tolist() == [2] * 3 and v.tolist() == [1] * 3


@pytest.mark.parametrize("inplace", [None, 0])
def test_old_content_of_an_overwritten_input_is_a_result(compiled, inplace):
    f = Function()
    x = f.input("x")
    new = f.call("increment", x, inplace=inplace)
    manifest, image = compiled(f, [("old", x, ""), ("x_new", new, "x"), ("new", new, "")])
    x = np.zeros(3, np.float32)
    old, new = call(LoadedProgram(manifest, image), [x], 3)
    assert old.tolist() == [0] * 3 and new.tolist() == [1] * 3 and x.tolist() == [1] * 3


def test_init_runs_once_per_weights(compiled):
    init, main = Function((4,)), Function((4,))
    w = init.weight("w")
    packed = init.call("mul", init.call("twice", w), w)
    out = main.call("add", main.input("x"), main.stored(0))
    manifest, image = compiled(main, [("out", out, "")], init, [packed], symbols=[])
    program = LoadedProgram(manifest, image)
    prepared = program.prepare(())
    x, out = np.ones(4, np.float32), np.empty(4, np.float32)
    for value in (1.0, 3.0):
        w = np.full(4, value, np.float32)
        constants = program.initialize([w.ctypes.data], [w])
        w[:] = np.nan  # not read again
        program.run(prepared, [x.ctypes.data], [out.ctypes.data], constants)
        assert out.tolist() == [2 * value * value + 1] * 4


def test_a_failed_check_names_kernel_and_line(compiled):
    f = Function()
    x = f.input("x")
    f.call("twice", x)
    program = LoadedProgram(*compiled(f, [("out", f.call("check", x), "")]))
    with pytest.raises(LaminaIndexError, match=r"index out of range in kernel 'check' at model.py:11 \(check\)"):
        call(program, [np.array([-1.0], np.float32)], 1)
    assert isinstance(program.failure(5 << 8 | 200), LaminaRuntimeError)


def test_many_threads_with_different_sizes(compiled):
    f = Function()
    x = f.input("x")
    program = LoadedProgram(*compiled(f, [("out", f.call("add", f.call("twice", x), f.call("increment", x)), "")]))
    wrong = []

    def caller(seed):
        generator = np.random.default_rng(seed)
        for _ in range(40):
            x = generator.standard_normal(int(generator.integers(0, 4000))).astype(np.float32)
            (y,) = call(program, [x], x.size)
            if not np.array_equal(y, (x + x) + (x + np.float32(1))):
                wrong.append(x.size)

    callers = [threading.Thread(target=caller, args=(i,)) for i in range(6)]
    [t.start() for t in callers]
    [t.join() for t in callers]
    assert not wrong


def test_sizes_of_launches_and_results(compiled):
    """Size expressions are evaluated alike in the host program and in Python."""
    from lamina.dialects import dims

    half = dims.floordiv(S, 2) * 3 + dims.mod(S, 5) + dims.dim_max(S, 7) - dims.dim_min(S, 3)
    f = Function((half,))
    program = LoadedProgram(*compiled(f, [("out", f.call("twice", f.input("x")), "")]))
    for s in (0, 1, 4, 11):
        size = s // 2 * 3 + s % 5 + max(s, 7) - min(s, 3)
        (y,) = call(program, [np.ones(size, np.float32)], s)
        assert y.shape == (size,) and (y == 2).all()


def test_profiling_hook_sees_every_launch(compiled):
    import ctypes

    f = Function()
    program = LoadedProgram(*compiled(f, [("out", f.call("twice", f.call("twice", f.input("x"))), "")]))
    seen = []
    hook = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(
        lambda _, n, end: seen.append((n, end))
    )
    program.contexts.hook = ctypes.cast(hook, ctypes.c_void_p).value
    call(program, [np.ones(3, np.float32)], 3)
    assert seen == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_in_place_over_an_intermediate_that_is_a_result(compiled):
    f = Function()
    z = f.call("increment", f.call("twice", f.input("x")), inplace=0)
    manifest, image = compiled(f, [("z", z, "")])
    first, second = manifest["plan"]["launches"]
    assert first["args"][-1] == ["output", 0] and second["args"] == [["output", 0]] * 2
    (z,) = call(LoadedProgram(manifest, image), [np.ones(3, np.float32)], 3)
    assert z.tolist() == [3] * 3
