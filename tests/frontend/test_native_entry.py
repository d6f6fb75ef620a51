"""The native entry means the same as the Python launcher, and leaves to it what it was not made for."""

import threading

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from lamina.frontend import weights
from lamina.frontend.calls import native_entry
from lamina.frontend.calls.entry_table import SLOT
from lamina.frontend.stats import COUNTERS


def entry_of(compiled_call):
    """The table behind the builtin of a compiled part."""
    return compiled_call.__self__.table


@pytest.fixture
def part(monkeypatch):
    """`part(function, *args, **options)`: compile for these arguments; returns the compiled function and its builtins."""
    from lamina.frontend.calls import launcher

    made = []
    compile_part = launcher.compile_part

    def noted(*args, **kwargs):
        made.append(compile_part(*args, **kwargs))
        return made[-1]

    monkeypatch.setattr(launcher, "compile_part", noted)

    def compile(function, *args, **options):
        compiled = torch.compile(function, backend="lamina", **options)
        with torch.no_grad():
            compiled(*args)
            compiled(*args)
        return compiled, made

    return compile


def fast_calls(table):
    return bool(table.slots[SLOT["valid"]])


def linear_softmax(x, w):
    return F.linear(x, w).softmax(-1)


def test_it_is_used(part):
    compiled, (call,) = part(linear_softmax, torch.randn(3, 4), torch.randn(5, 4))
    assert type(call).__name__ == "builtin_function_or_method" and fast_calls(entry_of(call))


def test_values_change_and_results_are_fresh(part):
    x, w = torch.randn(3, 4), torch.randn(5, 4)
    _, (call,) = part(linear_softmax, x, w)
    (one,) = call(x, w)
    kept = one.clone()
    (two,) = call(x + 1, w)
    torch.testing.assert_close(two, linear_softmax(x + 1, w))
    assert torch.equal(one, kept)


def python_calls(native, monkeypatch):
    """The sizes of the first argument of each call in Python from now on."""
    slow, python = [], type(native).__call__
    noted = lambda self, *args: slow.append(args[0].shape[0]) or python(self, *args)  # noqa: E731
    monkeypatch.setattr(type(native), "__call__", noted)
    return slow


def test_one_table_serves_all_sizes(part, monkeypatch):
    w = torch.randn(5, 4)
    compiled, (call,) = part(linear_softmax, torch.randn(3, 4), w, dynamic=True)
    slow = python_calls(call.__self__.chain.tables[0].native, monkeypatch)
    for n in (6, 2, 2, 9, 6, 1000, 3):
        x = torch.randn(n, 4)
        with torch.no_grad():
            torch.testing.assert_close(compiled(x, w), linear_softmax(x, w))
    assert not slow


def test_the_arena_grows_with_the_sizes(part, monkeypatch):
    def f(x):
        y = x.softmax(-1)
        return (y @ y.t()).softmax(0).sum(1)

    compiled, (call,) = part(f, torch.randn(3, 600), dynamic=True)
    slow = python_calls(call.__self__.chain.tables[0].native, monkeypatch)
    for n in (2000, 700, 2001, 4):
        x = torch.randn(n, 600)
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), f(x))
    assert slow in ([], [2000])  # where the arena, which all programs share, was smaller


def test_results_in_another_order_than_buffers(part, monkeypatch):
    def f(x):
        y = x.softmax(-1)
        return y.sum(0), y * 2

    for options in ({"dynamic": False}, {"dynamic": True}):
        torch._dynamo.reset()
        compiled, calls = part(f, torch.randn(6, 40), **options)
        slow = python_calls(calls[-1].__self__.chain.tables[0].native, monkeypatch)
        x = torch.randn(6, 40)
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), f(x))
        assert not slow


def test_sizes_that_are_given_as_numbers(part, monkeypatch):
    compiled, (call,) = part(lambda x, n: x.softmax(-1) * n, torch.randn(6, 40), 7, dynamic=True)
    slow = python_calls(call.__self__.chain.tables[0].native, monkeypatch)
    for rows, n in ((6, 7), (6, 9), (8, 9), (8, 2**40)):
        x = torch.randn(rows, 40)
        with torch.no_grad():
            torch.testing.assert_close(compiled(x, n), x.softmax(-1) * n)
    assert not slow


def test_a_failed_check_is_raised_after_one_run(part):
    table, index = torch.randn(3, 4), torch.tensor([0, 2])
    compiled, (call,) = part(lambda table, index: table[index], table, index)
    for _ in range(2):
        with torch.no_grad(), pytest.raises(IndexError, match="index out of range"):
            compiled(table, index + 1)
    assert fast_calls(entry_of(call))


def test_other_types_of_arguments(part):
    x, w = torch.randn(3, 4), torch.randn(5, 4)
    _, (call,) = part(linear_softmax, x, w)

    class Sub(torch.Tensor):
        pass

    for given in (nn.Parameter(x), x.as_subclass(Sub), x.t().contiguous().t()):
        with torch.no_grad():
            torch.testing.assert_close(torch.Tensor(call(given, w)[0]), linear_softmax(x, w))
    with pytest.raises(AttributeError):
        call(3, w)


def test_weight_changes_are_seen(part):
    layer = nn.Linear(6, 5)
    x = torch.randn(3, 6)
    compiled, _ = part(layer, x)

    def check():
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), layer(x))

    with torch.no_grad():
        layer.weight.add_(1)
    check()
    layer.weight.data = torch.randn(5, 6)
    check()
    layer.weight = nn.Parameter(torch.randn(5, 6))
    check()
    layer.load_state_dict(nn.Linear(6, 5).state_dict())
    check()
    layer.load_state_dict(nn.Linear(6, 5).state_dict(), assign=True)
    check()


@pytest.mark.parametrize("fused", [False, True])
def test_optimiser_steps_are_seen(part, fused):
    layer = nn.Linear(6, 5)
    x = torch.randn(3, 6)
    compiled, _ = part(layer, x)
    optimiser = torch.optim.AdamW(layer.parameters(), 0.1, fused=fused)
    for _ in range(2):
        layer(x).sum().backward()
        optimiser.step()
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), layer(x))


def test_optimiser_steps_leave_parts_without_constants_alone(part, monkeypatch):
    """A training loop steps each time: its parts have no weights, and stay memoised."""
    from lamina.frontend.calls.launcher import Native

    x = torch.randn(3, 4)
    compiled, _ = part(lambda x: x.exp() + 1, x)
    calls = []
    call = Native.__call__
    monkeypatch.setattr(Native, "__call__", lambda self, *args: calls.append(args) or call(self, *args))
    weights.invalidate()  # what the hook after each step does
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), x.exp() + 1)
    assert not calls


def test_invalidate_after_a_write_that_leaves_no_trace(part):
    import lamina

    layer = nn.Linear(6, 5)
    x = torch.randn(3, 6)
    compiled, _ = part(layer, x)
    layer.weight.data.numpy()[:] = 1
    lamina.invalidate()
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), layer(x))


def test_from_many_threads(part):
    x, w = torch.randn(64, 32), torch.randn(16, 32)
    _, (call,) = part(linear_softmax, x, w)
    expected, wrong = linear_softmax(x, w), []

    def work():
        for _ in range(50):
            if not torch.allclose(call(x, w)[0], expected, atol=1e-5):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_thread_count_follows_torch(part):
    x, w = torch.randn(64, 32), torch.randn(16, 32)
    _, (call,) = part(linear_softmax, x, w)
    before = torch.get_num_threads()
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            torch.testing.assert_close(call(x, w)[0], linear_softmax(x, w))
            assert entry_of(call).slots[SLOT["threads"]] == count
    finally:
        torch.set_num_threads(before)


def test_in_a_forked_child(part):
    import os

    x, w = torch.randn(256, 256), torch.randn(256, 256)
    _, (call,) = part(linear_softmax, x, w)
    expected = call(x, w)[0].numpy().tobytes()
    child = os.fork()
    if child == 0:  # torch's own parallel ops would hang here
        os._exit(0 if all(call(x, w)[0].numpy().tobytes() == expected for _ in range(2)) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_memory_does_not_grow(part):
    import resource

    x, w = torch.randn(64, 64), torch.randn(64, 64)
    _, (call,) = part(linear_softmax, x, w)
    for _ in range(1000):
        call(x, w)

    def growth():
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(20000):
            call(x, w)
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before

    assert any(growth() < 4096 for _ in range(3))  # kB; other threads of the process may take some, but not each time


def test_a_dropped_part_frees_its_table(part):
    import gc
    import weakref

    _, made = part(linear_softmax, torch.randn(3, 4), torch.randn(5, 4))
    table = weakref.ref(entry_of(made[0]))
    made.clear()
    torch._dynamo.reset()
    gc.collect()
    assert table() is None


def test_fingerprint_of_inference_tensors_is_unknown():
    with torch.inference_mode():
        t = torch.zeros(2)
    assert weights.fingerprint([t], frozen=False) is None
    assert weights.fingerprint([t], frozen=True) is not None


def test_support_is_there():
    assert native_entry._support() is not None


def test_writes_to_arguments_are_counted_without_a_wrapper(part):
    def update(cache, x):
        cache.add_(x)
        return cache * 2

    cache, x = torch.zeros(4), torch.ones(4)
    compiled, _ = part(update, cache, x)  # two calls
    assert COUNTERS.snapshot()["direct"] == 1
    counted = cache._version
    with torch.no_grad():
        assert compiled(cache, x).tolist() == [6] * 4
    assert cache.tolist() == [3] * 4 and cache._version == counted + 1
