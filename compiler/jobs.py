"""What workers do: each job is a function of a message that answers with a message.

echo            sends back what it got, for tests
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from .messages import Message

_JOBS: dict[str, Callable[[Message], Message]] = {}


def job(function: Callable[[Message], Message]) -> Callable[[Message], Message]:
    """Make `function` the job of its name."""
    _JOBS[function.__name__] = function
    return function


def run(request: Message) -> Message:
    """Do the job that the request names."""
    return _JOBS[request.header["job"]](request)


def import_all() -> None:
    """Import MLIR, LLVM and all passes; called once in the zygote, before any Context exists."""
    import llvmlite.binding  # noqa: F401
    import mlir.ir  # noqa: F401
    import mlir.passmanager  # noqa: F401


@job
def echo(request: Message) -> Message:
    """Send the request back; with "fail" or "abort" in the header, show what a failing job looks like."""
    if "fail" in request.header:
        raise ValueError(request.header["fail"])
    if "abort" in request.header:
        import os

        print("about to abort", file=sys.stderr, flush=True)
        os.abort()
    if "sleep" in request.header:
        import time

        time.sleep(request.header["sleep"])
    return Message({**request.header, "modules": [m for m in ("mlir.ir", "torch") if m in sys.modules]}, request.blobs)
