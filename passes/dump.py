"""Dumps: the IR after every pass, one numbered file each, one folder per module, and an index.

    out/addmm_gelu/00_input.mlir
    out/addmm_gelu/01_lamina-emit-matmul.mlir
    out/addmm_gelu/index.txt          01  lamina-emit-matmul{nr=32}   3.1 ms
                                      02  cse (unchanged)             0.1 ms

A step that changed nothing gets a line in the index and no file. Numbers go on when a module passes through several
pipelines. Snapshots are bytecode and become text when the run has ended, so the passes run at their own speed.
"""

from __future__ import annotations

import re
from pathlib import Path

from mlir import ir


class Dump:
    """A folder of dumps. `begin`, `snapshot` for each step and `end` are called by the driver."""

    def __init__(self, directory: str | Path):
        self.directory = Path(directory)
        self._counts: dict[str, int] = {}
        self._label = ""
        self._pending: list[tuple[str, bytes, float]] = []

    def begin(self, label: str, bytecode: bytes) -> None:
        """Start a run on the module `label`."""
        self._label, self._pending = label, [("input", bytecode, 0.0)]

    def snapshot(self, step: str, bytecode: bytes, seconds: float) -> None:
        """Note the module after `step`."""
        self._pending.append((step, bytecode, seconds))

    def end(self, context: ir.Context) -> None:
        """Write what was noted."""
        folder = self.directory / file_name(self._label)
        folder.mkdir(parents=True, exist_ok=True)
        number = self._counts.get(self._label, 0)
        lines, last = [], b""
        for step, bytecode, seconds in self._pending:
            if step == "input" and number:
                last = bytecode
                continue  # the run before ended with this
            changed = bytecode != last
            if changed:
                text = str(ir.Module.parse(bytecode, context))
                name = file_name(step.partition("{")[0])
                _write(folder / f"{number:02}_{name}.mlir", f"// {self._label} after {step}\n{text}\n")
            lines.append(f"{number:02}  {step + ('' if changed else ' (unchanged)'):60}  {seconds * 1e3:8.2f} ms\n")
            number, last = number + 1, bytecode
        _write(folder / "index.txt", "".join(lines), "a")
        self._counts[self._label] = number
        self._pending = []

    def text(self, label: str, name: str, content: str) -> None:
        """Write a further text of the module `label`, such as its assembly."""
        folder = self.directory / file_name(label)
        folder.mkdir(parents=True, exist_ok=True)
        _write(folder / name, content)


def _write(path: Path, text: str, mode: str = "w") -> None:
    """Write a file; what fails names it, which a full disk does not."""
    try:
        with open(path, mode) as file:
            file.write(text)
    except OSError as error:
        error.filename = str(path)
        raise


def file_name(text: str) -> str:
    """`text` with everything that file systems dislike replaced, at most 100 characters."""
    return re.sub(r"[^\w.+-]+", "_", text).strip("_")[:100] or "module"
