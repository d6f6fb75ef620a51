"""Time that is not computing: calls of a one-kernel graph under Dynamo and of an artifact from numpy, and the import.

`python benchmarks/overhead.py` writes benchmarks/results/overhead.md.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from timing import interleaved, write

import lamina

# The same graph for Dynamo; an empty one it would not even guard.
ALONE = "Dynamo alone (a backend that returns its input)"
# What every backend must do: make a tensor for the result. After all that Dynamo runs, the allocator is not in caches.
EMPTY = "Dynamo and an uninitialised result"


def main() -> None:
    torch.set_num_threads(2)
    x = torch.randn(64)

    def three(x):
        return torch.relu(x * 2 + 1)

    empty = torch._C._dynamo.guards._empty_strided_cpu
    backends = {
        ALONE: lambda gm, ex: lambda x: (x,),
        EMPTY: lambda gm, ex: lambda x: (empty((64,), (1,), torch.float32),),
        "lamina": "lamina",
        "inductor": "inductor",
    }
    calls = {"eager": lambda: three(x)}

    def compiled(backend):
        fresh = torch.compile(lambda x: torch.relu(x * 2 + 1), backend=backend)
        return lambda: fresh(x)

    calls |= {name: compiled(b) for name, b in backends.items()}
    with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        program = torch.export.export(Relu(), (x,))
        path = Path(folder) / "relu.lamina"
        lamina.export(program, targets=["native"]).save(path)
        artifact, array, out = lamina.load(path), x.numpy(), np.empty(64, np.float32)
        calls["artifact from numpy"] = lambda: artifact(array)
        calls["artifact from numpy, out given"] = lambda: artifact(array, out=out)
        times = interleaved(calls, 8.0, clock=time.thread_time)
    lines = ["| one kernel, 64 floats | µs a call, median | minimum |", "|---|---|---|"]
    lines += [f"| {name} | {t.median * 1e6:.2f} | {t.minimum * 1e6:.2f} |" for name, t in times.items()]
    lines.append("")
    for name in (ALONE, EMPTY):
        above = [(getattr(times["lamina"], k) - getattr(times[name], k)) * 1e6 for k in ("median", "minimum")]
        lines.append(f"Lamina above {name}: {above[0]:.2f} µs, minima {above[1]:.2f}.")
    lines += ["", f"Importing what `lamina.load` needs: {import_seconds() * 1e3:.1f} ms of processor time after numpy."]
    write("overhead", "Time per call", " ".join(["python", *sys.argv]), lines)


def import_seconds(rounds: int = 7) -> float:
    """The least processor time of the import in new processes; the first writes the bytecode."""
    code = "import numpy, time; start = time.process_time(); import lamina; lamina.load; print(time.process_time() - start)"
    command = [sys.executable, "-c", code]
    return min(float(subprocess.run(command, capture_output=True, text=True, check=True).stdout) for _ in range(rounds))


class Relu(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x * 2 + 1)


if __name__ == "__main__":
    main()
