"""Workers: jobs, failures, deaths, time limits, threads, forks and parents that vanish."""

import os
import subprocess
import sys
import textwrap
import threading
import time

import pytest
from support.hang import HANG

from lamina.compiler.messages import Message
from lamina.compiler.pool import Died, Pool


@pytest.fixture(scope="module")
def pool():
    made = Pool(2)
    yield made
    made.close()


def echo(**header):
    return Message({"job": "echo", **header})


def only(pool, job):
    ((_, reply),) = pool.run([job])
    return reply


def test_a_job_is_answered_by_another_process_without_torch(pool):
    reply = only(pool, Message({"job": "echo", "x": 1}, [b"abc", b""]))
    assert reply.header["x"] == 1 and list(reply.blobs) == [b"abc", b""]
    assert reply.header["modules"] == ["mlir.ir"]


def test_workers_for_gpus_are_forked_with_what_these_need():
    made = Pool(1)
    try:
        made.start()  # nothing is known of the target yet
        made.warm(gpu=True)
        assert only(made, echo()).header["modules"] == ["mlir.ir", "mlir.dialects.nvvm"]
    finally:
        made.close()


def test_many_jobs_run_on_all_workers(pool):
    replies = list(pool.run([echo(n=n) for n in range(40)]))
    assert sorted(r.header["n"] for _, r in replies) == list(range(40))
    assert all(job.header["n"] == r.header["n"] for job, r in replies)


def test_an_exception_is_an_answer(pool):
    error = only(pool, echo(fail="no such thing")).header["error"]
    assert error["type"] == "ValueError" and error["message"] == "no such thing"


def test_an_abort_is_one_death_with_its_log_and_the_pool_goes_on(pool):
    replies = [r for _, r in pool.run([echo(n=0), echo(abort=True), echo(n=1), echo(n=2)])]
    (died,) = [r for r in replies if isinstance(r, Died)]
    assert "about to abort" in died.log and "jobs.py" in died.log  # the Python stack
    assert len(replies) == 4
    assert only(pool, echo(n=3)).header["n"] == 3


def test_a_job_that_takes_too_long_dies(pool):
    died = only(pool, echo(sleep=60, timeout=0.2))
    assert isinstance(died, Died) and "Timeout" in died.log


def test_memory_is_limited(pool):
    assert only(pool, echo(allocate=64 << 30)).header["error"]["type"] == "MemoryError"


def test_workers_that_were_killed_while_idle_are_replaced(pool):
    for _ in pool.run([echo(n=n) for n in range(4)]):
        pass
    workers = children(pool._zygote.pid)
    for pid in workers:
        os.kill(pid, 9)
    os.kill(pool._zygote.pid, 9)
    pool._zygote.wait()
    assert all(map(ends, workers))  # else a job might still reach one
    assert only(pool, echo(n=8)).header["n"] == 8


def children(pid):
    """The processes whose parent is `pid`."""
    found = []
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and open(f"/proc/{name}/stat").read().rsplit(")", 1)[1].split()[1] == str(pid):
                found.append(int(name))
        except OSError:
            pass  # it is gone
    return found


def test_large_messages(pool):
    blob = os.urandom(5_000_000)
    assert only(pool, Message({"job": "echo"}, [blob])).blobs[0] == blob


def test_eight_threads_at_once(pool):
    good = []

    def work(t):
        good.append(sum(r.header["n"] for _, r in pool.run([echo(n=n) for n in range(10)])) == 45)

    threads = [threading.Thread(target=work, args=(t,)) for t in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert good == [True] * 8


def test_giving_up_in_the_middle_leaves_a_working_pool(pool):
    for _ in pool.run([echo(n=n) for n in range(6)]):
        break
    assert only(pool, echo(n=7)).header["n"] == 7


SCRIPT = """
import sys
from lamina.compiler.messages import Message
from lamina.compiler import pool as pools
pools.warm()
def ask(): return [r.header["n"] for _, r in pools.pool().run([Message({"job": "echo", "n": 5})])]
"""


def python(code, **kwargs):
    return subprocess.run(
        [sys.executable, "-"],
        input=SCRIPT + textwrap.dedent(code),
        capture_output=True,
        text=True,
        timeout=HANG,
        **kwargs,
    )


def test_from_a_script_on_standard_input_without_main_guard(tmp_path):
    (tmp_path / "json.py").write_text("raise SystemExit('the user has a file called json.py')")
    done = python("print(ask())", cwd=tmp_path, env={**os.environ, "PYTHONSAFEPATH": "1"})
    assert done.stdout == "[5]\n" and done.stderr == ""


def test_the_users_process_imports_neither_mlir_nor_llvm():
    done = python("ask(); print([m for m in ('mlir', 'llvmlite', 'torch') if m in sys.modules])")
    assert done.stdout == "[]\n"


def test_in_process_for_debugging():
    done = python("print(ask(), type(pools.pool()).__name__)", env={**os.environ, "LAMINA_INPROCESS": "1"})
    assert done.stdout == "[5] InProcess\n"


def test_workers_that_cannot_start_say_why(tmp_path):
    (tmp_path / "llvmlite.py").write_text("raise ImportError('no llvmlite here')")
    done = python(
        f"""
        sys.path.insert(0, {str(tmp_path)!r})
        pools.pool().close()
        ((_, died),) = pools.pool().run([Message({{"job": "echo"}})])
        print(died.log.splitlines()[-1])
        """
    )
    assert done.stdout == "ImportError: no llvmlite here\n", done.stderr


def test_a_forked_child_has_its_own_workers():
    done = python(
        """
        import os
        assert ask() == [5]
        parents = pools.pool()
        if os.fork() == 0:
            assert pools.pool() is not parents
            print(ask(), flush=True)
            pools.pool().close()
            os._exit(0)
        os.wait()
        print(ask())
        """
    )
    assert done.stdout == "[5]\n[5]\n", done.stderr


def test_workers_end_with_a_killed_parent_even_if_a_child_of_it_lives():
    parent = subprocess.Popen([sys.executable, "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    code = SCRIPT + "ask()\nimport os, time\nchild = os.fork()\n"
    code += f"if child: print(pools.pool()._zygote.pid, child, flush=True)\ntime.sleep({2 * HANG})\n"
    parent.stdin.write(code)
    parent.stdin.close()
    zygote, child = map(int, parent.stdout.readline().split())
    try:
        parent.kill()
        parent.wait()
        assert ends(zygote), "the zygote outlives its parent"
    finally:
        os.kill(child, 9)
        parent.stdout.close()


def ends(pid):
    """Wait for the end of a process that is not our child; False if it does not come."""
    for _ in range(20 * HANG):
        try:
            with open(f"/proc/{pid}/stat") as file:
                if file.read().rsplit(")", 1)[1].split()[0] == "Z":
                    return True
        except FileNotFoundError:
            return True
        time.sleep(0.05)
    return False
