"""Times of passes, summed by name over any number of runs, as the table of `--time-passes`."""

from __future__ import annotations

from collections.abc import Mapping


class PassTimes:
    """Seconds and calls by name; times of other processes are merged with `update`."""

    def __init__(self, seconds: Mapping[str, tuple[float, int]] | None = None):
        self.seconds: dict[str, tuple[float, int]] = dict(seconds or {})

    def add(self, name: str, seconds: float, calls: int = 1) -> None:
        """Count `seconds` for `name`."""
        total, count = self.seconds.get(name, (0.0, 0))
        self.seconds[name] = (total + seconds, count + calls)

    def update(self, other: Mapping[str, tuple[float, int]]) -> None:
        """Add the times of another table."""
        for name, (seconds, calls) in other.items():
            self.add(name, seconds, calls)

    def table(self) -> str:
        """One line per pass, slowest first: `   12.3   61.5%      4  canonicalize`, and the total."""
        total = sum(s for s, _ in self.seconds.values())
        lines = ["      ms   share  calls  pass"]
        for name, (seconds, calls) in sorted(self.seconds.items(), key=lambda item: -item[1][0]):
            share = seconds / total if total else 0.0
            lines.append(f"{seconds * 1e3:8.1f}  {share:6.1%}  {calls:5}  {name}")
        return "\n".join([*lines, f"{total * 1e3:8.1f}  {1:6.1%}         total"])
