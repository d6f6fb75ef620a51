"""What can go wrong in compilation, one class for each culprit: the graph, a kernel, a worker.

`nodes` are the places in the user's program (`record.Location`) that the failure belongs to; a caller that can run
them otherwise (torch.compile's fallback to eager) compiles the rest again without them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..dialects.record import Location


class CompileError(RuntimeError):
    """A graph that did not become a program."""

    def __init__(self, message: str, nodes: Sequence[Location] = ()):
        super().__init__(message)
        self.nodes = tuple(nodes)


class GraphError(CompileError):
    """The graph is wrong, or a pass on the whole graph failed."""


class WorkerError(CompileError):
    """A worker process could not start or died, and there was no other way."""


@dataclass(frozen=True)
class KernelFailure:
    """One kernel that no pipeline could compile: what each of them said, and the reproducer's path ("": none)."""

    kernel: str
    message: str
    nodes: tuple[Location, ...] = ()
    reproducer: str = ""

    def __str__(self) -> str:
        places = ", ".join(dict.fromkeys(map(str, self.nodes))) or "unknown place"
        known = "run it again" in self.message  # by the pass that failed
        again = f"\n  run it again: lamina compile {self.reproducer} --to obj -o /dev/null"
        hint = again if self.reproducer and not known else ""
        return f"kernel '{self.kernel}' ({places}): {self.message}{hint}"


class KernelError(CompileError):
    """Some kernels could not be compiled, neither optimised nor plain; `failures` says which and why."""

    def __init__(self, failures: Sequence[KernelFailure]):
        super().__init__("\n".join(map(str, failures)), [node for f in failures for node in f.nodes])
        self.failures = tuple(failures)
