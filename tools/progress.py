"""A progress bar for compilation: on a terminal, if rich is installed; otherwise nothing."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def progress_bar() -> Iterator[Callable[[int, int, str], None] | None]:
    """`with progress_bar() as progress:` gives a callback `progress(done, total, name)`, or None."""
    if not sys.stderr.isatty():
        yield None
        return
    try:
        from rich.console import Console
        from rich.progress import Progress
    except ImportError:
        yield None
        return
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("kernels", total=None)
        yield lambda done, total, name: bar.update(task, completed=done, total=total, description=name[:40])
