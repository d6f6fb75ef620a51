"""Reproducers: one file with the IR before a failing pass and the pipeline that is left to run.

The pipeline is in a comment, not in MLIR's `mlir_reproducer` resource, since that one cannot name passes in Python:

    // lamina reproducer: pass 'lamina-cse' failed on 'k0'
    // run: lamina opt FILE --run-reproducer
    // pipeline: lamina-cse,canonicalize
    module { … }
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from .dump import file_name

_PIPELINE = "// pipeline: "


class ReproducerError(ValueError):
    """A file that is not a reproducer."""


def write_reproducer(directory: str, label: str, name: str, ir_text: str, pipeline: str) -> str:
    """Write a reproducer and return its path; its name is made of the module's, the pass's and a hash of the rest.

    Nothing may fail while a failure is being reported: where the directory cannot be written, "" is returned.
    """
    digest = hashlib.sha256((pipeline + "\n" + ir_text).encode()).hexdigest()[:8]
    path = Path(directory) / f"{file_name(label)}.{file_name(name)}.{digest}.mlir"
    head = f"// lamina reproducer: pass '{name}' failed on '{label}'\n// run: lamina opt {path} --run-reproducer\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.write_text(f"{head}{_PIPELINE}{pipeline}\n{ir_text}\n")
    except OSError:
        return ""
    return str(path)


def read_reproducer(text: str) -> str:
    """The pipeline of a reproducer's text; the text itself parses as a module. ReproducerError if there is none."""
    for line in text.splitlines()[:10]:
        if line.startswith(_PIPELINE):
            return line[len(_PIPELINE) :]
    raise ReproducerError(f"this file is not a reproducer: it lacks a line '{_PIPELINE}…'")
