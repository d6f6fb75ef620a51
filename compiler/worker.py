"""The process that compiles: imports MLIR and LLVM once, then forks a worker for each one that is asked for.

`python -m lamina.compiler.worker FD` is the *zygote*. On the socket FD it receives pairs of file descriptors (a
worker's socket and its log) with a byte, FORK or FORK_GPU, and forks a worker for each, which takes a few milliseconds:
MLIR is imported, for FORK_GPU also what GPUs need, and no Context exists (a fork with a live one hangs). A worker
answers messages on its socket, one after another:

    {"job": name, "timeout": seconds, …} + blobs  →  {…} + blobs   or   {"error": {"type", "message"}}

Both end when the other end of their socket closes, so they end with the user's process however it ends. Standard
output belongs to nobody here: prints of MLIR or of ours go to the worker's log, which is shown if the worker dies.
torch is never imported.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import resource
import signal
import socket
import sys
import traceback
from typing import Any

from . import messages
from .messages import FORK_GPU, Message

# Address space that one worker may take beyond what it starts with. The largest kernel of the model zoo needs 0.4 GiB.
MEMORY_LIMIT = 8 << 30


def main(arguments: list[str]) -> None:
    """Serve as zygote on the socket whose descriptor is the only argument."""
    control = socket.socket(fileno=int(arguments[0]))
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1):
        os.dup2(null, descriptor)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the user's process, which then closes our sockets
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no zombies
    broken, for_gpu = import_compiler(), False
    while True:
        data, descriptors, _, _ = socket.recv_fds(control, 1, 2)
        if not data:
            return
        if data == FORK_GPU and not (broken or for_gpu):
            broken, for_gpu = import_gpu(), True
        if broken:
            os.write(descriptors[1], broken.encode())  # and the closed socket says that this worker is dead
        elif os.fork() == 0:
            control.close()
            _become_worker(*descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


def import_compiler() -> str:
    """Import all that jobs need, so that forked workers have it at once; returns what went wrong, or ""."""
    try:
        from . import jobs

        jobs.import_all()
        gc.freeze()  # collections in the workers must not copy these pages
    except Exception:
        return traceback.format_exc()
    return ""


def import_gpu() -> str:
    """Import what jobs for GPUs need beside it; returns what went wrong, or ""."""
    try:
        from . import jobs

        jobs.import_gpu()
    except Exception:
        return traceback.format_exc()
    return ""


def _become_worker(connection: int, log: int) -> None:
    """Serve on `connection` until it closes; never returns."""
    status = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for descriptor in (1, 2):
            os.dup2(log, descriptor)
        faulthandler.enable()  # an abort in MLIR leaves the Python stack in the log, and so the pass's name
        _limit_memory()
        serve(socket.socket(fileno=connection))
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def serve(connection: socket.socket) -> None:
    """Answer messages until the other end closes."""
    while True:
        try:
            request = messages.receive(connection)
        except messages.Closed:
            return
        faulthandler.dump_traceback_later(request.header.get("timeout", 600.0), exit=True)
        try:
            reply = answer(request)
        finally:
            faulthandler.cancel_dump_traceback_later()
        messages.send(connection, reply)


def answer(request: Message) -> Message:
    """Do one job; an exception becomes an answer with its type and text."""
    from . import jobs

    try:
        return jobs.run(request)
    except Exception as error:
        return Message({"error": describe(error)})


def describe(error: Exception) -> dict[str, Any]:
    """An exception as plain data; `nodes` are those of the first exception in the chain of causes that has some."""
    cause: BaseException | None = error
    while cause and not getattr(cause, "nodes", ()):
        cause = cause.__cause__
    nodes = [list(n) for n in getattr(cause, "nodes", ())]
    return {"type": type(error).__name__, "message": str(error) or type(error).__name__, "nodes": nodes}


def _limit_memory() -> None:
    if not sys.platform.startswith("linux"):
        return
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    limit = used + MEMORY_LIMIT
    resource.setrlimit(resource.RLIMIT_AS, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


if __name__ == "__main__":
    main(sys.argv[1:])
