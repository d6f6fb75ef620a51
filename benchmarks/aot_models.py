"""Whole models as .pt2 → `lamina compile` → artifact → calls with numpy alone, against eager: values, compile time, speed, memory.

`python benchmarks/aot_models.py` writes benchmarks/results/aot_models.md; with names of models it only prints. The artifact runs in a process of
its own, which never imports torch; its calls alternate with eager's in this one, two threads each.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))
from ahead_of_time import Runner, compile_model  # noqa: E402
from compile_time import pss  # noqa: E402
from models import ZOO  # noqa: E402
from models.accuracy import compare, exact_calls, flat  # noqa: E402
from models.llama import next_calls  # noqa: E402
from timing import table, write  # noqa: E402

HEAD = "| model | error | eager's error | right | compile s | compile MB | artifact MB | run ms | eager ms | eager / run | run MB |"
NOTES = """
Errors are relative to the output's scale, against the model in float64; *right* is the rule of examples/models/accuracy.py.
*compile* is the whole `lamina compile` command from an empty cache, start of Python and torch included, and the peak of
the PSS of its processes, the weights included. *run MB* is the most memory that the numpy process held. Times are medians.
A `…_decode` is four steps of one session.
"""


class Watched:
    """Runs a command; remembers its seconds and the peak of the memory of its processes."""

    def __init__(self, cache: str):
        self.environment = {**os.environ, "LAMINA_CACHE_DIR": cache}
        self.seconds, self.peak = 0.0, 0

    def __call__(self, command: Sequence[str], check: bool, **options: Any) -> None:
        start = time.perf_counter()
        with subprocess.Popen(command, env=self.environment, **options) as process:
            while process.poll() is None:
                self.peak = max(self.peak, pss(process.pid))
                time.sleep(0.1)
        self.seconds = time.perf_counter() - start
        if check and process.returncode:
            raise subprocess.CalledProcessError(process.returncode, command)


def alternate(runner: Runner, eager: Callable[[], object], seconds: float) -> tuple[float, float]:
    """Medians of the artifact's and eager's seconds; of every two calls in a row the second counts."""
    ours, theirs = [], []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(ours) < 7:
        runner.seconds()
        ours.append(runner.seconds())
        eager()
        start = time.perf_counter()
        eager()
        theirs.append(time.perf_counter() - start)
        time.sleep(0.01)  # torch's threads spin for a while after a call
    return statistics.median(ours), statistics.median(theirs)


def measure(name: str) -> str:
    torch.manual_seed(0)
    model, args = ZOO[name]()
    calls = next_calls(args, 4) if name.endswith("_decode") else [args]
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as cache, torch.no_grad():
        run = Watched(cache)
        artifact = compile_model(model, args, Path(folder), run=run)
        size = artifact.stat().st_size
        exact = exact_calls(model, calls)
        eager = [flat(model(*a)) for a in calls]
        with Runner(artifact, calls, Path(folder)) as runner:
            ours, theirs = alternate(runner, lambda: model(*calls[-1]), 2.5)
        found = compare(runner.results(), eager, exact)
    for fault in found.faults:
        print(f"{name}: {fault}")
    row = f"| {name} | {found.error:.1e} | {found.eager:.1e} | {'no' if found.faults else 'yes'} | {run.seconds:.1f} |"
    row += f" {run.peak / 1e6:.0f} | {size / 1e6:.1f} | {ours * 1e3:.2f} | {theirs * 1e3:.2f} | {theirs / ours:.2f} |"
    return f"{row} {runner.facts['peak_bytes'] / 1e6:.0f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=[], help=f"of {', '.join(ZOO)}")
    options = parser.parse_args()
    torch.set_num_threads(2)
    lines = table(HEAD, map(measure, options.models or ZOO))
    if options.models:
        return
    write(
        "aot_models",
        "Models ahead of time, CPU, two threads",
        " ".join(["python", *sys.argv]),
        lines + NOTES.splitlines(),
    )


if __name__ == "__main__":
    main()
