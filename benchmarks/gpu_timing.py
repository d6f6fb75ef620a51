"""What the GPU benchmarks share: CUDA graphs replayed in turn, errors, lines that may fail, and the JSON of a run."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch


class Case(Protocol):
    """A line's subject."""

    @property
    def name(self) -> str: ...


C = TypeVar("C", bound=Case)
Tensors = Sequence[torch.Tensor]
CACHE = 256 * 1024 * 1024  # bytes of input sets that no cache holds


def moved(given: Tensors, result: torch.Tensor) -> int:
    """Bytes that must be read and written."""
    return sum(t.numel() * t.element_size() for t in [*given, result])


class Captured:
    """A function on several sets of operands as a CUDA graph."""

    def __init__(self, function: Callable[..., Any], sets: Sequence[Tensors], calls: int):
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                function(*sets[0])
        torch.cuda.current_stream().wait_stream(stream)
        self.calls = calls
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.kept = [function(*sets[i % len(sets)]) for i in range(calls)]

    def microseconds(self) -> float:
        """One call's time, by events around a replay."""
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        self.graph.replay()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) * 1000 / self.calls


def interleaved(captured: dict[str, Captured], rounds: int = 15) -> dict[str, float]:
    """Medians of alternating replays, each after one more of its own: none pays for what another has left in the caches."""
    times: dict[str, list[float]] = {name: [] for name in captured}
    for _ in range(rounds):
        for name, c in captured.items():
            c.graph.replay()
            times[name].append(c.microseconds())
    return {name: statistics.median(t) for name, t in times.items()}


def error(made: torch.Tensor, exact: torch.Tensor) -> float:
    """Relative Frobenius distance; NaN is infinite."""
    exact = exact.double()  # it may be integers
    found = float((made.double() - exact).norm() / exact.norm())
    return found if found == found else float("inf")


def attempt(name: str, measure: Callable[[], dict[str, Any]]) -> dict[str, Any] | None:
    """A line of a table; None where measuring it fails, which is printed."""
    try:
        return measure()
    except Exception as failure:
        print(f"{name}: {type(failure).__name__}: {str(failure)[:300]}", flush=True)
        return None


def by_group(
    groups: Mapping[str, Sequence[C]], only: str, measure: Callable[[C], dict[str, Any]], shown: Callable[[Any], str]
) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Measure and print the cases of all groups, or of those in `only`; each group and its lines."""
    for group, cases in groups.items():
        if only and group not in only.split(","):
            continue
        lines = []
        for case in cases:
            line = attempt(case.name, lambda case=case: measure(case))
            if line is None:
                continue
            lines.append({"group": group, **line})
            print(shown(line), flush=True)
        yield group, lines


def save(path: str, lines: Sequence[dict[str, Any]]) -> None:
    """Write the lines as JSON, with what they were measured on; nothing without a path."""
    if path:
        found = {"gpu": torch.cuda.get_device_name(0), "torch": torch.__version__, "lines": lines}
        Path(path).write_text(json.dumps(found, indent=1))
