"""Every provider runs each item once, from any thread, at any grain, and in forked children."""

import ctypes
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from support.hang import HANG

from lamina.compiler.native.support_ir import support_ir
from lamina.runtime import threads
from lamina.runtime.loader import Image

# buffers[0][i] += 1 for each item; status 7 at item dims[0]; then sleep-free busy work so that threads overlap
# buffers[1][begin] = end for each chunk
COUNT = """
define i32 @count.range(ptr %ctx, ptr %buffers, ptr %dims, i64 %begin, i64 %end) {
entry:
  %out = load ptr, ptr %buffers
  %bad = load i64, ptr %dims
  %ends.at = getelementptr ptr, ptr %buffers, i64 1
  %ends = load ptr, ptr %ends.at
  %end.at = getelementptr i64, ptr %ends, i64 %begin
  store i64 %end, ptr %end.at
  br label %loop
loop:
  %i = phi i64 [ %begin, %entry ], [ %next, %loop ]
  %failed = phi i32 [ 0, %entry ], [ %status, %loop ]
  %at = getelementptr i64, ptr %out, i64 %i
  %old = load i64, ptr %at
  %new = add i64 %old, 1
  store i64 %new, ptr %at
  %is_bad = icmp eq i64 %i, %bad
  %status = select i1 %is_bad, i32 7, i32 %failed
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %end
  br i1 %more, label %loop, label %done
done:
  ret i32 %status
}
define i32 @count(ptr %ctx, ptr %buffers, ptr %dims) {
  %parallel.at = getelementptr ptr, ptr %ctx, i64 1
  %parallel = load ptr, ptr %parallel.at
  %total.at = getelementptr i64, ptr %dims, i64 1
  %total = load i64, ptr %total.at
  %grain.at = getelementptr i64, ptr %dims, i64 2
  %grain = load i64, ptr %grain.at
  %status = call i32 %parallel(ptr %ctx, ptr @count.range, ptr %buffers, ptr %dims, i64 %total, i64 %grain)
  ret i32 %status
}
"""
PROVIDERS = [name for name in threads._BY_NAME if name != "torch" and threads._BY_NAME[name]() is not None]


@pytest.fixture(scope="module")
def image(build):
    return Image(build(COUNT, support_ir()))


@pytest.fixture(params=PROVIDERS)
def provided(request, image, monkeypatch):
    monkeypatch.setenv("LAMINA_THREADS", request.param)
    monkeypatch.setenv("LAMINA_NUM_THREADS", "3")
    monkeypatch.setattr(threads, "_provider", None)
    return threads.Contexts(image)


def run(image, contexts, total, grain, bad=-1, ends=None):
    counts = np.zeros(max(total, 1), np.int64)
    ends = np.zeros_like(counts) if ends is None else ends
    buffers = (ctypes.c_void_p * 2)(counts.ctypes.data, ends.ctypes.data)
    dims = (ctypes.c_int64 * 3)(bad, total, grain)
    function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(image.address("count"))
    return function(contexts.current(), ctypes.addressof(buffers), ctypes.addressof(dims)), counts[:total]


@pytest.mark.parametrize("total, grain", [(0, 1), (1, 1), (2, 1), (7, 3), (100, 1), (1000, 64), (13, 0), (5, 1000)])
def test_each_item_runs_once(image, provided, total, grain):
    status, counts = run(image, provided, total, grain)
    assert status == 0 and (counts == 1).all()


@pytest.mark.parametrize("total", [12, 13, 22, 100, 1001])
def test_shares_of_threads_differ_by_one_item(image, provided, total):
    """Three threads, four chunks each, or one: none has the longer chunks of all."""
    ends = np.zeros(total, np.int64)
    run(image, provided, total, 1, ends=ends)
    begins = np.flatnonzero(ends)
    assert (ends[begins] == [*begins[1:], total]).all() and len(begins) in (1, 12)
    shares = (ends[begins] - begins).reshape(-(-len(begins) // 4), -1)
    assert np.ptp(shares) <= 1 and np.ptp(shares.sum(1)) <= 1


def test_a_failing_chunk_gives_its_status_and_others_still_run(image, provided):
    status, counts = run(image, provided, 100, 1, bad=77)
    assert status == 7 and (counts == 1).all()


def test_a_lone_thread_runs_the_shares_of_all(image):
    """torch's pool, called inside a region of its own, runs everything on one thread: here, share 2 of 3 first."""
    last = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
    pool = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, last, ctypes.c_void_p)

    @pool
    def one(begin, end, grain, work, state):
        assert (begin, end, grain) == (0, 3, 1)
        work(2, 3, state)
        return 0

    context = (ctypes.c_int64 * 8)(
        1, image.address("lamina_parallel_torch"), 3, ctypes.cast(one, ctypes.c_void_p).value
    )

    class Contexts:
        def current(self):
            return ctypes.addressof(context)

    for total in (3, 12, 100):
        status, counts = run(image, Contexts(), total, 1, bad=total - 1)
        assert status == 7 and (counts == 1).all()


def test_many_calling_threads(image, provided):
    wrong = []

    def caller():
        for _ in range(50):
            status, counts = run(image, provided, 200, 5)
            if status or (counts != 1).any():
                wrong.append(counts)

    callers = [threading.Thread(target=caller) for _ in range(6)]
    [t.start() for t in callers]
    [t.join() for t in callers]
    assert not wrong


def test_threads_that_look_and_threads_that_sleep(image, provided):
    """Long regions outlast a caller's looks, pauses outlast a worker's; short regions follow at once."""
    for i in range(30):
        time.sleep(0.003 if i % 6 < 2 else 0)
        status, counts = run(image, provided, (2_000_000, 30, 30)[i % 3], 1)
        assert status == 0 and (counts == 1).all()


def test_forked_child(image, provided):
    assert run(image, provided, 100, 1)[0] == 0
    before = threads.provider().name
    # beside torch, which another test may have imported, what was OpenMP's runs serially
    expected = {"gomp": "serial" if "torch" in sys.modules else "pool"}.get(before, before)
    child = os.fork()
    if child == 0:
        import signal

        signal.alarm(HANG)  # a hang ends the child with a signal, which fails the test
        status, counts = run(image, threads.Contexts(image), 100, 1)
        os._exit(int(status != 0 or (counts != 1).any() or threads.provider().name != expected))
    assert os.waitpid(child, 0)[1] == 0


def test_our_pool_has_the_threads_asked_for(image, monkeypatch):
    monkeypatch.setenv("LAMINA_THREADS", "pool")
    monkeypatch.setenv("LAMINA_NUM_THREADS", "4")
    for name, value in (("_provider", None), ("_pool", 0)):
        monkeypatch.setattr(threads, name, value)
    before = set(os.listdir("/proc/self/task"))
    run(image, threads.Contexts(image), 100, 1)
    assert len(set(os.listdir("/proc/self/task")) - before) == 3  # threads of other tests may end meanwhile


@pytest.mark.parametrize("library", ["", "libgomp.so.1"])
def test_openmp_is_for_those_who_have_it(library):
    """Beside OpenMP's threads, which look for work for long, ours would not run; alone, ours are faster."""
    if library and "gomp" not in PROVIDERS:
        pytest.skip("no OpenMP here")
    program = f"""
import sys
sys.path[:0] = {[str(folder) for folder in Path(__file__).parents[:2]]!r}
import ctypes
if {library!r}:
    ctypes.CDLL({library!r})
from lamina.runtime import threads
print(threads.provider().name)
"""
    made = subprocess.run([sys.executable, "-c", program], check=True, timeout=HANG, capture_output=True, text=True)
    assert made.stdout.strip() == ("gomp" if library else "pool")


@pytest.mark.parametrize(
    "variable, value, message",
    [("LAMINA_THREADS", "fibers", "choose one of torch, gomp"), ("LAMINA_NUM_THREADS", "many", "number of threads")],
)
def test_bad_settings(image, monkeypatch, variable, value, message):
    monkeypatch.setenv(variable, value)
    monkeypatch.setattr(threads, "_provider", None)
    with pytest.raises(threads.LaminaRuntimeError, match=message):
        threads.Contexts(image).current()


def test_torch_pool_follows_torch(build, tmp_path):
    """In a process of its own: importing torch changes the provider of all later tests."""
    (tmp_path / "image.so").write_bytes(build(COUNT, support_ir()))
    program = f"""
import sys
sys.path[:0] = {[str(folder) for folder in Path(__file__).parents[:2]]!r}
import os, torch
from lamina.runtime import threads
from lamina.runtime.loader import Image
from test_threads import run
image = Image(open({str(tmp_path / "image.so")!r}, "rb").read())
torch.set_num_threads(2)
torch.randn(1 << 20).sin()
contexts = threads.Contexts(image)
before = set(os.listdir("/proc/self/task"))
for total in (1, 2, 100, 999):
    status, counts = run(image, contexts, total, 1)
    assert status == 0 and (counts == 1).all()
assert threads.provider().name == "torch"
assert set(os.listdir("/proc/self/task")) <= before, "a second pool"
if os.fork() == 0:
    import signal
    signal.alarm({HANG})
    status, counts = run(image, threads.Contexts(image), 100, 1)
    os._exit(int(status != 0 or (counts != 1).any()))
assert os.wait()[1] == 0
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=HANG)


def test_a_context_that_another_thread_has_replaced_stays(image, monkeypatch):
    """A call of the first thread may still run with it."""
    gone, others = [], []

    class Seen(threads._Context):
        def __del__(self):
            gone.append(self.address)

    def user(image, count):
        if not others:
            others.append(0)
            others[0] = contexts.current()  # the turn of another thread
        return 1

    monkeypatch.setattr(threads, "_Context", Seen)
    monkeypatch.setattr(threads, "provider", lambda: threads.Provider("gomp", user, lambda: 2))
    contexts = threads.Contexts(image)
    assert contexts.current() != others[0] and not gone
