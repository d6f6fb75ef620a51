"""The native entry for arrays takes the calls that it was made for, and leaves all others to Python."""

import ctypes
import gc
import os
import subprocess
import sys
import textwrap
import weakref

import numpy as np
import pytest
from support.hang import HANG

import lamina
from lamina.runtime import entry
from lamina.runtime.array_table import SLOT
from lamina.runtime.errors import LaminaIndexError, LaminaRuntimeError
from lamina.tools.profile import profile

from .conftest import Function


class Watched:
    """A model and what went through its slow path."""

    def __init__(self, model):
        self.model, self.slow = model, 0
        self.chain = model._call.__self__.chain
        caller, general = model._caller, model._caller.general

        def counted(out, *inputs):
            self.slow += 1
            return general(out, *inputs)

        caller.general = counted

    def __call__(self, *args, **keywords):
        """The result, and whether it was made natively."""
        before = self.slow
        return self.model(*args, **keywords), self.slow == before


@pytest.fixture
def twice(saved, compiled):
    """y = 2 x and z = x + 1, of any size."""
    f = Function()
    x = f.input("x")
    outputs = [("y", f.call("twice", x), ""), ("z", f.call("increment", x), "")]
    return Watched(lamina.load(saved({"main": compiled(f, outputs)})))


@pytest.fixture
def checked(saved, compiled):
    """count += 1 in place, then an error if x[0] is negative; y = x[0]."""
    f = Function((4,))
    x, count = f.input("x"), f.input("count")
    new = f.call("increment", count, inplace=0)
    outputs = [("y", f.call("check", x), ""), ("new", new, "count")]
    return Watched(lamina.load(saved({"main": compiled(f, outputs, symbols=[])})))


def ones(n=5):
    return np.ones(n, np.float32)


def learn(watched, *args):
    for _ in range(3):
        watched(*args)


def test_the_third_call_is_native(twice):
    assert [twice(ones())[1] for _ in range(4)] == [False, False, True, True]
    (y, z), native = twice(ones() * 3)
    assert native and type(y) is np.ndarray and y.tolist() == [6] * 5 and z.tolist() == [4] * 5
    assert y.flags.owndata and y.flags.writeable and y.dtype == np.float32


def test_sizes_are_remembered_side_by_side(twice):
    sizes = range(3, 3 + entry.LIMIT)
    for n in sizes:
        learn(twice, ones(n))
    assert all(twice(ones(n))[1] for n in sizes)
    learn(twice, ones(40))  # the one that is one too many takes the place of another
    assert twice(ones(40))[1]
    for n in (*sizes, 40):
        assert twice(ones(n))[0][0].tolist() == [2] * n


def test_one_thread_at_a_time_fills_a_table(twice):
    """Calls meanwhile are right, and leave what is being filled alone."""
    native = []

    def memoise(table):
        native.extend(twice(ones())[1] for _ in range(4))

    for _ in range(2):
        twice.chain.fill("another", memoise)
    assert native == [False] * 4
    learn(twice, ones())
    (y, _), native_now = twice(ones())
    assert native_now and y.tolist() == [2] * 5


def test_what_is_not_an_array_as_seen_before_is_left_to_python(twice):
    learn(twice, ones())
    wide = np.ones(10, np.float32)
    for given in (wide[::2], ones().view(np.memmap), ones().astype(">f4"), ones(6)):
        (y, _), native = twice(given)
        assert not native and y.tolist() == [2] * len(given)
    for wrong in (ones().astype(np.float64), None, [1.0], ones().reshape(1, 5)):
        with pytest.raises(LaminaRuntimeError):
            twice(wrong)


def test_results_into_arrays_of_the_caller(twice):
    x = ones()
    learn(twice, x)
    for kind in (tuple, list):
        outs = kind(np.zeros(5, np.float32) for _ in range(2))
        (y, z), native = twice(x, out=outs)
        assert native and y is outs[0] and z is outs[1] and y.tolist() == [2] * 5
    counts = [sys.getrefcount(o) for o in outs]
    for _ in range(10):
        twice(x, out=outs)
    del y, z
    assert [sys.getrefcount(o) for o in outs] == [c - 1 for c in counts]


def test_arrays_of_the_caller_that_need_care(twice):
    x = ones()
    learn(twice, x)
    strided, over = np.zeros(10, np.float32)[::2], ones()
    for first, given in ((strided, x), (over, over), (over[::-1], over)):
        given[:] = 1
        (y, z), native = twice(given, out=(first, np.zeros(5, np.float32)))
        assert not native and y is first and y.tolist() == [2] * 5 and z.tolist() == [2] * 5
    frozen = ones()
    frozen.flags.writeable = False
    for wrong in ((frozen, ones()), (ones(4), ones()), (ones(),), 3 * (ones(),), (ones().astype(float), ones()), 1):
        with pytest.raises((LaminaRuntimeError, TypeError)):
            twice(x, out=wrong)


def test_inputs_that_are_written(checked):
    x, count = ones(4), np.zeros(4, np.float32)
    learn(checked, x, count)
    assert checked(x, count)[1] and count.tolist() == [4] * 4
    count[:] = 1
    assert not checked(count, count)[1]  # one array for both
    count.flags.writeable = False
    with pytest.raises(LaminaRuntimeError, match="read-only"):
        checked(x, count)


def test_a_failed_call_runs_once_and_says_where(checked):
    x, count = ones(4), np.zeros(4, np.float32)
    learn(checked, x, count)
    before = count.tolist()
    with pytest.raises(LaminaIndexError, match="index out of range in kernel 'check' at model.py:11"):
        checked(-x, count)
    assert count.tolist() == [c + 1 for c in before]
    assert checked(x, count)[1]


def test_a_failure_is_that_of_its_own_call(checked, twice):
    """Other threads may call other models as soon as Python runs."""
    x, count = ones(4), np.zeros(4, np.float32)
    learn(checked, x, count)
    elsewhere = []

    def call_another(_frame, event, _argument):
        if event == "call" and not elsewhere:
            elsewhere.append(None)
            elsewhere[0] = twice(ones(10)[::2])[0][0].tolist()

    sys.setprofile(call_another)
    try:
        with pytest.raises(LaminaIndexError, match="kernel 'check'"):
            checked.model(-x, count)
    finally:
        sys.setprofile(None)
    assert elsewhere == [[2] * 5]


def test_a_profiler_sees_every_call(twice):
    learn(twice, ones())
    with profile(twice.model._caller.program) as launches:
        for _ in range(4):
            twice(ones())
    assert [launch.calls for launch in launches] == [4, 4]
    learn(twice, ones())
    assert twice(ones())[1]


def test_a_large_call_gives_up_the_gil(twice):
    for n, released in ((5, 0), (4096, 1)):
        learn(twice, ones(n))
        (table,) = [t for t in twice.chain.tables if t.kept and t.kept[0].buffers[0].shape == (n,)]
        assert table.slots[SLOT["release"]] == released


def test_in_a_forked_child(twice):
    learn(twice, ones())
    child = os.fork()
    if child == 0:
        os._exit(0 if all(twice(ones())[0][0].tolist() == [2] * 5 for _ in range(4)) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_torch_that_is_imported_later_brings_its_threads(twice):
    code = f"""
        import numpy as np, lamina
        from lamina.runtime import threads
        model = lamina.load({str(twice.model.artifact.path)!r})
        x = np.ones(4096, np.float32)
        for _ in range(4):
            model(x)
        before = threads.provider().name
        import torch
        for count in (1, 2, 1):
            torch.set_num_threads(count)
            for _ in range(4):
                assert (model(x)[0] == 2).all()
            table = model._call.__self__.chain.tables[0]
            assert table.slots[{SLOT["valid"]}] and table.slots[{SLOT["threads"]}] == count
        assert before != "torch" and threads.provider().name in ("torch", "gomp")
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, timeout=HANG)


def test_a_dropped_model_is_freed(saved, compiled):
    f = Function()
    model = lamina.load(saved({"main": compiled(f, [("y", f.call("twice", f.input("x")), "")])}))
    for _ in range(4):
        model(ones())
    chain = weakref.ref(model._call.__self__.chain)
    code = weakref.ref(model._caller.program.image._memory)
    del model
    gc.collect()
    assert chain() is None and code() is None


def test_what_cpython_reads_of_an_entry_lives_as_long_as_its_self(twice):
    """A collection clears the attributes of all that is garbage before CPython looks at a builtin for the last time."""
    call = twice.model._call
    definition = ctypes.c_size_t.from_address(id(call) + object.__basicsize__).value
    assert 0 < definition - id(call.__self__) < bytes.__sizeof__(call.__self__)


@pytest.mark.parametrize("provider", ["gomp", "pool", "serial"])
def test_threads_in_native_code_at_exit(twice, provider):
    """Python lets go of its modules while daemon threads run a program."""
    code = f"""
        import threading, numpy as np, lamina
        model, x = lamina.load({str(twice.model.artifact.path)!r}), np.ones(8192, np.float32)
        begun = threading.Semaphore(0)
        def work(x):
            while True:
                model(x)
                begun.release()
        for n in range(3):  # by native code, and by Python
            threading.Thread(target=work, args=(x if n else x[::2],), daemon=True).start()
        for _ in range(20):
            begun.acquire()
    """
    environment = {**os.environ, "LAMINA_THREADS": provider, "LAMINA_NUM_THREADS": "2"}
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, timeout=HANG, env=environment)


def test_results_are_freed(twice):
    x = ones(4096)
    learn(twice, x)
    import resource

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(3000):
        assert twice(x)[1]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 8 << 10
