"""Work that runs MLIR, in a child of the command's process: wrong IR aborts the process that it is in.

The child is a fork made before MLIR is imported (1 ms), so input, output and errors are the command's own. It notes each
step in memory that both share, so that the parent can say what was running when it died.
"""

from __future__ import annotations

import functools
import mmap
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import click

from ..compiler.options import in_process

_SIZE = 4096
_note: mmap.mmap | None = None  # in the child: what it is at


def aside(work: Callable[..., None]) -> Callable[..., None]:
    """Do `work` in a child and end with its status; in this process with LAMINA_INPROCESS=1, or where there is no fork."""

    @functools.wraps(work)
    def run(*args: Any, **keywords: Any) -> None:
        global _note
        if in_process() or not hasattr(os, "fork"):
            work(*args, **keywords)
            return
        note = mmap.mmap(-1, _SIZE)
        sys.stdout.flush()
        sys.stderr.flush()
        child = os.fork()
        if child == 0:
            _note = note
            work(*args, **keywords)
            return  # the child goes on to the end of the program
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status < 0:
            raise click.ClickException(_last_words(-status, note))
        raise SystemExit(status)

    return run


def entered(step: str) -> None:
    """Note that `step` begins."""
    if _note is not None:
        text = step.encode()[: _SIZE - 1] + b"\0"
        _note[: len(text)] = text


def _last_words(number: int, note: mmap.mmap) -> str:
    step = note[:_SIZE].partition(b"\0")[0].decode(errors="replace")
    where = f"in '{step}'" if step else "before the first pass"
    return (
        f"MLIR ended the process {where} ({signal.Signals(number).name}; what it said stands above): "
        "the IR is wrong there, or this is a bug. --verify-each finds the pass that made it so"
    )
