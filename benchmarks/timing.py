"""Timing for shared, noisy machines: interleaved rounds, medians and ratios."""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Timing:
    """Seconds per call over the rounds."""

    median: float
    minimum: float


def interleaved(
    calls: dict[str, Callable[[], object]],
    seconds: float = 2.0,
    rounds: int = 7,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Timing]:
    """Time the calls in turn, A B C A B C …, for about `seconds` and at least `rounds` rounds.

    Each turn repeats its call for a few milliseconds, so that the clock's cost and one interruption weigh little.
    For calls that run on one thread `time.thread_time` as the clock leaves out what others do to the machine.
    """
    repeats = {}
    for name, call in calls.items():
        call()
        call()
        start = clock()
        call()
        repeats[name] = max(1, int(0.003 / max(clock() - start, 1e-7)))
    samples: dict[str, list[float]] = {name: [] for name in calls}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(next(iter(samples.values()))) < rounds:
        for name, call in calls.items():
            start = clock()
            for _ in range(repeats[name]):
                call()
            samples[name].append((clock() - start) / repeats[name])
    return {name: Timing(statistics.median(s), min(s)) for name, s in samples.items()}


def machine() -> str:
    """One line on the processor, its cores and the load, to stand above every table."""
    model = "unknown processor"
    info = Path("/proc/cpuinfo")
    if info.exists():
        model = next(
            (x.split(":")[1].strip() for x in info.read_text().splitlines() if x.startswith("model name")), model
        )
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
    return f"{model}, {os.cpu_count()} cores, Python {platform.python_version()}, load {load:.1f}"


def table(head: str, rows: Iterable[str]) -> list[str]:
    """The lines of a table; each row is printed as it comes."""
    lines = [head, "|" + "---|" * (head.count("|") - 1)]
    for row in rows:
        print(row, flush=True)
        lines.append(row)
    return lines


def write(name: str, title: str, command: str, lines: list[str]) -> None:
    """Print a table and keep it as benchmarks/results/NAME.md with the command that made it."""
    text = "\n".join([f"# {title}", "", f"`{command}` on {machine()}", "", *lines]) + "\n"
    print(text)
    folder = Path(__file__).parent / "results"
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.md").write_text(text)
