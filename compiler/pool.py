"""The user's side of the workers: starts them, hands out jobs, and notices deaths.

One zygote process (`worker.py`) is started with `subprocess`, which unlike `multiprocessing` needs no main guard, works
in scripts read from standard input and in daemonic processes. Workers are forked from it on demand, as many as there
are CPUs, all alike: any worker does any job. `start()` starts the zygote and `warm()` workers too; both return at once,
so that the 0.5 s that the imports take are hidden behind tracing.

    for job, reply in pool().run(jobs): …      # in order of completion; a death is a `Died` in place of the reply

Several threads may run jobs at once; workers go back to the pool after each job, so they share fairly. A forked child
of the user's process (a DataLoader worker) forgets the pool and starts its own if it compiles.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import socket
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any

from . import messages, options
from .errors import WorkerError
from .messages import FORK, FORK_GPU, Message

Job = Message  # header["job"] names a function of `jobs.py`

EARLY = 16  # workers that `warm` forks at most: models have 10 to 20 different kernels, and a worker takes memory

# What the zygote runs: our import path first, then the worker. With `-m`, Python would put the working directory,
# and any `json.py` of the user's in it, on the path.
_START = "import sys; sys.path[:] = sys.argv[2:]; from {package}.worker import main; main(sys.argv[1:2])"


@dataclass(frozen=True)
class Died:
    """What came instead of a reply: the worker died, and `log` is the end of what it wrote."""

    log: str


class Worker:
    """One worker process, known by its socket; `log` is the file that its standard error goes to."""

    def __init__(self, connection: socket.socket, log: IO[bytes]):
        self.connection, self.log = connection, log
        self.proven = False  # it has answered once

    def read_log(self) -> str:
        """The last lines of the log: the assertion of an abort, and the Python stack."""
        self.log.seek(max(0, self.log.seek(0, os.SEEK_END) - 4000))
        return self.log.read().decode(errors="replace").strip()

    def close(self) -> None:
        self.connection.close()
        self.log.close()


class Pool:
    """Workers of this process. Use `pool()`, which makes the one there is."""

    def __init__(self, size: int):
        self.size = size
        self._changed = threading.Condition()
        self._idle: list[Worker] = []
        self._all: set[Worker] = set()
        self._control: socket.socket | None = None
        self._zygote: subprocess.Popen[bytes] | None = None
        self._request = FORK

    def start(self) -> None:
        """Start the zygote in the background."""
        with self._changed:
            if not self._alive():
                self._start_zygote()

    def warm(self, gpu: bool = False) -> None:
        """Start the zygote and workers in the background; with `gpu` they are about to compile for one."""
        with self._changed:
            if gpu:
                self._request = FORK_GPU
            while len(self._all) < min(self.size, EARLY):
                self._idle.append(self._fork())

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, Message | Died]]:
        """Do all jobs, as many at a time as workers are free, and yield each with its reply as they finish."""
        waiting, running = deque(jobs), dict[socket.socket, tuple[Worker, Job]]()
        try:
            while waiting or running:
                while waiting and (worker := self._take(wait=not running)):
                    try:
                        messages.send(worker.connection, waiting[0])
                    except messages.Closed:
                        if worker.proven:  # it died while it was idle: somebody killed it, and not for this job
                            self._drop(worker)
                            continue
                    running[worker.connection] = (worker, waiting.popleft())
                for connection in select_readable(list(running)):
                    worker, job = running.pop(connection)
                    yield job, self._finish(worker)
        finally:
            for worker, _ in running.values():  # the caller gave up: these workers are busy with what nobody wants
                self._drop(worker)

    def close(self) -> None:
        """End all idle workers and the zygote; busy workers end after their job."""
        with self._changed:
            for worker in self._idle:
                worker.close()
            if self._control:
                self._control.close()
            if self._zygote:
                self._zygote.kill()  # it holds nothing, and may still be importing
                self._zygote.wait()
            self._idle, self._all, self._control, self._zygote = [], set(), None, None

    def forget(self) -> None:
        """In a forked child: close our copies of the sockets, so that the workers still see the parent's end."""
        for worker in self._all:
            worker.close()
        if self._control:
            self._control.close()

    def _take(self, wait: bool) -> Worker | None:
        with self._changed:
            while True:
                if self._idle:
                    return self._idle.pop()
                if len(self._all) < self.size:
                    return self._fork()
                if not wait:
                    return None
                self._changed.wait()

    def _finish(self, worker: Worker) -> Message | Died:
        try:
            reply = messages.receive(worker.connection)
        except messages.Closed:
            died = Died(worker.read_log())
            self._drop(worker)
            return died
        worker.proven = True
        with self._changed:
            if worker in self._all:  # the pool was not closed meanwhile
                self._idle.append(worker)
                self._changed.notify()
            else:
                worker.close()
        return reply

    def _drop(self, worker: Worker) -> None:
        worker.close()
        with self._changed:
            self._all.discard(worker)
            self._changed.notify()

    def _fork(self) -> Worker:
        """Ask the zygote for one more worker; `_changed` is held. It reads our first message when it is ready."""
        ours, theirs = socket.socketpair()
        log = tempfile.TemporaryFile(buffering=0)
        with theirs:
            for last in (False, True):
                if not self._alive():
                    self._start_zygote()
                try:
                    socket.send_fds(self._control, [self._request], [theirs.fileno(), log.fileno()])  # type: ignore[list-item]
                    break
                except OSError as error:
                    if last:
                        raise WorkerError(f"the compile workers cannot be started: {error}; {_WAY_OUT}") from None
                    self._zygote = None  # it was killed a moment ago
        worker = Worker(ours, log)
        self._all.add(worker)
        return worker

    def _alive(self) -> bool:
        return self._zygote is not None and self._zygote.poll() is None

    def _start_zygote(self) -> None:
        if not sys.executable:
            raise WorkerError(f"this Python does not know its own executable, so no worker can start; {_WAY_OUT}")
        ours, theirs = socket.socketpair()
        package = __package__ or ""
        path = [p or os.getcwd() for p in sys.path]
        command = [sys.executable, "-W", "ignore", "-c", _START.format(package=package), str(theirs.fileno()), *path]
        with theirs:
            try:
                self._zygote = subprocess.Popen(
                    command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, start_new_session=True
                )
            except OSError as error:
                raise WorkerError(f"'{sys.executable}' cannot be started as a worker: {error}; {_WAY_OUT}") from None
        self._control = ours


_WAY_OUT = "LAMINA_INPROCESS=1 compiles in this process"


class InProcess:
    """A pool that is this process, for debugging: a crash of MLIR is a crash of the program."""

    def start(self) -> None:
        pass

    def warm(self, gpu: bool = False) -> None:
        pass

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, Message | Died]]:
        from .worker import answer

        for job in jobs:
            yield job, answer(job)

    def close(self) -> None:
        pass


def select_readable(connections: list[Any]) -> list[Any]:
    """The sockets that have something to read (or are closed), waiting for the first; any number of them."""
    if not hasattr(select, "poll"):
        return select.select(connections, [], [])[0]
    poll, by_number = select.poll(), {c.fileno(): c for c in connections}
    for number in by_number:
        poll.register(number, select.POLLIN | select.POLLHUP)
    return [by_number[number] for number, _ in poll.poll()]


class _Holder:
    """The pool of this process, made at first use; a forked child gets a new, empty holder."""

    def __init__(self) -> None:
        self.lock = threading.RLock()  # a finalizer may compile amid the section
        self.pool: Pool | None = None


_holder = _Holder()


def pool() -> Pool | InProcess:
    """The pool of this process."""
    if options.in_process():
        return InProcess()
    with _holder.lock:
        if not _holder.pool:
            _holder.pool = Pool(_cpu_count())
            atexit.register(_holder.pool.close)
        return _holder.pool


def start() -> None:
    """Begin to start workers: what takes longest, and is the same for all targets. An error is left to the first job."""
    with contextlib.suppress(WorkerError):
        pool().start()


def warm(gpu: bool = False) -> None:
    """Start the workers in the background, so that they are ready when something is to be compiled."""
    pool().warm(gpu)


def _cpu_count() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _forget_in_child() -> None:
    global _holder
    old, _holder = _holder, _Holder()
    if old.pool:
        atexit.unregister(old.pool.close)
        old.pool.forget()


os.register_at_fork(after_in_child=_forget_in_child)
