"""Counters of what was compiled and what ran in eager: `lamina.stats()`; `LAMINA_LOG=fallback` prints fallbacks.

graphs, training_graphs   graphs that torch.compile gave us: for inference; forward and backward ones
direct                    of the former, those that Dynamo calls without AOTAutograd's wrapper
parts, cached_parts       compiled pieces of these graphs; those that were in the cache on disk
kernels, plain_kernels    their kernels; those whose optimised compilation failed
compiled_nodes            nodes of graphs that were compiled
eager_nodes, fallback     those that run in eager; the same by op, with reasons and places
failures                  what compilations that failed said
graph_breaks              why Dynamo broke graphs, and how often
"""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

from ..dialects.record import Location

_COUNTED = (
    "graphs", "training_graphs", "direct", "parts", "cached_parts", "kernels", "plain_kernels", "compiled_nodes", "eager_nodes",
)  # fmt: skip


class Counters:
    """Numbers since the start or the last `reset`; safe to use from several threads."""

    def __init__(self) -> None:
        self.forget()
        self.reset()

    def forget(self) -> None:
        """In a forked child: no other thread is counting. A finalizer or a signal's handler may count amid a section."""
        self._lock = threading.RLock()

    def reset(self) -> None:
        """Start again from zero."""
        with self._lock:
            self._counts: dict[str, int] = {name: 0 for name in _COUNTED}
            self._fallback: dict[str, dict[str, Any]] = {}
            self._failures: list[str] = []

    def add(self, name: str, amount: int = 1) -> None:
        """Count `amount` more of `name`."""
        with self._lock:
            self._counts[name] += amount

    def fallback(self, op: str, reason: str, place: Location) -> None:
        """Note that a node runs in eager."""
        with self._lock:
            entry = self._fallback.setdefault(op, {"count": 0, "reason": reason.splitlines()[0], "places": []})
            entry["count"] += 1
            where = str(place)
            if where not in entry["places"] and len(entry["places"]) < 20:
                entry["places"].append(where)
        if "fallback" in os.environ.get("LAMINA_LOG", "").split(","):
            print(f"lamina: {op} at {where} runs in eager: {reason}", file=sys.stderr)

    def failure(self, message: str) -> None:
        """Note a compilation that failed; its ops run in eager."""
        with self._lock:
            self._failures.append(message)
        if os.environ.get("LAMINA_LOG"):
            print(f"lamina: compilation failed, its ops run in eager: {message}", file=sys.stderr)

    def snapshot(self) -> dict[str, Any]:
        """All numbers as plain data, with Dynamo's graph breaks."""
        with self._lock:
            found: dict[str, Any] = dict(self._counts)
            found["fallback"] = {k: {**v, "places": list(v["places"])} for k, v in self._fallback.items()}
            found["failures"] = list(self._failures)
        found["graph_breaks"] = _graph_breaks()
        return found


def _graph_breaks() -> dict[str, int]:
    torch = sys.modules.get("torch")
    if torch is None or "torch._dynamo" not in sys.modules:
        return {}
    found: dict[str, int] = {}
    for reason, count in torch._dynamo.utils.counters.get("graph_break", {}).items():
        first = reason.strip().splitlines()[0] if reason.strip() else "unknown"
        found[first] = found.get(first, 0) + count
    return found


COUNTERS = Counters()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=COUNTERS.forget)


def stats() -> dict[str, Any]:
    """What torch.compile gave Lamina in this process, what was compiled, and which ops run in eager and why.

    ```python
    found = lamina.stats()
    found["parts"], found["plain_kernels"]  # 3, 0
    found["fallback"]  # {'aten.nonzero.default': {'count': 1, 'reason': 'no converter', 'places': ['model.py:31 (nonzero)']}}
    ```

    The keys are listed at the top of this module.
    """
    return COUNTERS.snapshot()
