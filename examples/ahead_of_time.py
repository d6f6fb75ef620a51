"""A module to an artifact by files and commands alone, and its calls in a process that has numpy only.

compile_model(model, args, folder)          →  folder/model.lamina, by torch.export and `lamina compile`
with Runner(artifact, calls, folder) as r:  →  r.results, r.seconds(), then r.facts
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

HERE = Path(__file__).parent


def compile_model(
    model: nn.Module,
    args: tuple[Any, ...],
    folder: Path,
    dynamic_shapes: Any = None,
    run: Callable[..., Any] = subprocess.run,
) -> Path:
    """Export `model` to folder/model.pt2 and compile the file with the command `run` starts; returns the artifact."""
    file, artifact = folder / "model.pt2", folder / "model.lamina"
    with torch.no_grad():
        program = torch.export.export(model, args, dynamic_shapes=dynamic_shapes, strict=False)
    torch.export.save(program, file)
    command = [sys.executable, "-m", "lamina.tools.cli", "compile", str(file), "-o", str(artifact)]
    run(command, check=True, stderr=subprocess.DEVNULL)
    return artifact


class Runner:
    """Successive calls of an artifact in a process of its own, which never imports torch."""

    def __init__(self, artifact: Path, calls: Sequence[Sequence[Tensor]], folder: Path):
        given, taken = folder / "arguments.npz", folder / "results.npz"
        np.savez(given, **{f"{c}.{i}": a.numpy() for c, args in enumerate(calls) for i, a in enumerate(args)})
        command = [sys.executable, str(HERE / "run_artifact.py"), str(artifact), str(given), str(taken)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._taken, self._count = taken, len(calls)
        self.facts: dict[str, Any] = {}

    def seconds(self) -> float:
        """Run the last call again and return what it took."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())

    def results(self) -> list[list[Tensor]]:
        """The results of each call, once the process has ended."""
        with np.load(self._taken) as arrays:
            found = {name: torch.from_numpy(arrays[name]) for name in arrays.files}
        return [[y for name, y in found.items() if name.startswith(f"{c}.")] for c in range(self._count)]

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        if kind is not None:
            self._process.kill()
        out, _ = self._process.communicate()
        if kind is None:
            if self._process.returncode:
                raise RuntimeError(f"running the artifact failed with status {self._process.returncode}")
            self.facts = json.loads(out.splitlines()[-1])
