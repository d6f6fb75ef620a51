"""What the scripts share that check kernels on a real GPU (`tests/gpu/run*.py`)."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable, Iterable
from typing import Any

import torch

from lamina.compiler.api import compile_graph
from lamina.dialects.record import Graph
from lamina.frontend.values import torch_dtype
from lamina.runtime.gpu import cuda
from lamina.runtime.gpu.cuda import target_of
from lamina.runtime.gpu.program import GpuProgram


class Failures:
    """Runs checks and keeps the messages of those that fail."""

    def __init__(self) -> None:
        self.failed: dict[str, str] = {}
        self.passed = 0

    def run(self, name: str, check: Callable[[], Any]) -> None:
        try:
            check()
            self.passed += 1
        except Exception as error:
            self.failed[name] = f"{type(error).__name__}: {' '.join(str(error).split())[:400]}"
            if "-v" in sys.argv:
                traceback.print_exc()

    def report(self, what: str) -> None:
        print(f"{what}: {self.passed} passed, {len(self.failed)} failed", flush=True)
        for name, message in self.failed.items():
            print(f"  {name}: {message}")


def in_threads(work: Callable[[Any], None], arguments: Iterable[Any]) -> None:
    """`work(argument)` in a thread for each argument; the first error is raised."""
    errors: list[BaseException] = []

    def watched(argument: Any) -> None:
        try:
            work(argument)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=watched, args=(a,)) for a in arguments]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if errors:
        raise errors[0]


def distance(a: torch.Tensor, exact: torch.Tensor) -> float:
    """Relative Frobenius distance; NaN never passes."""
    found = float((a.double() - exact).norm() / exact.norm().clamp_min(1e-30))
    return found if found == found else float("inf")


def run_graph(graph: Graph, tensors: list[torch.Tensor], target: str = "") -> list[torch.Tensor]:
    """The outputs of `graph` on the GPU, which are whole buffers; compiled for another `target` that it can run."""
    device = cuda.device(0)
    made = compile_graph(graph, target or target_of(device))
    program = GpuProgram(made.manifest, made.image, device)
    names = [i["name"] for i in program.plan["inputs"]]
    given = {i.name: t for i, t in zip(graph.inputs, tensors)}
    prepared = program.prepare(())
    buffers = [poisoned(b.shape, torch_dtype(b.dtype)) for b in prepared.buffers]
    program.run(prepared, [given[n].data_ptr() for n in names], [b.data_ptr() for b in buffers])
    torch.cuda.synchronize()
    program.check_status()
    results = []
    for o in prepared.outputs:
        base = buffers[o.index] if o.space == "output" else given[names[o.index]]
        results.append(torch.as_strided(base, o.shape, o.strides, o.offset).clone())
    return results


def poisoned(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Memory that shows when it was not written."""
    value: Any = float("nan") if dtype.is_floating_point else (dtype is not torch.bool and 77)
    return torch.full(shape, value, dtype=dtype, device="cuda")
