"""Files that several commands read and name."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import click


def read_text(file: str) -> str:
    """The text of IR or a record in `file` (`-`: standard input); bytes are an error that says what was expected."""
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise click.ClickException(
            f"{file} is not text: IR and records are; a model (.pt2) is for `lamina compile`, without --from"
        ) from None


@contextlib.contextmanager
def writing(file: str | Path) -> Iterator[None]:
    """Let an error name the file: a write to a full disk says only that the disk is full."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(file)
        raise


def bytes_text(count: int) -> str:
    """A number of bytes to read: `28.5 kB`, `46.9 MB`."""
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.1f} kB"
