"""What issuing a call of an artifact on an NVIDIA GPU costs the CPU: launched by Python, by native code, as a graph.

    python benchmarks/gpu_artifacts.py [--folder DIR] [--prepare] [CASE …]

Each case is exported and saved, or taken from DIR, and compared with float64; `--prepare` ends there. A time is that of
issuing a call among others in a row on three inputs in turn, in rounds that end before the queue of the device is full.
Systems alternate; the median of rounds counts.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import lamina

sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))

SETS, ROUNDS = 3, 15
QUEUE = 400  # launches in a round; the device's queue holds 1024


class Chain(torch.nn.Module):
    """As many kernels: softmaxes over another dim each time, which do not fuse."""

    def __init__(self, kernels: int):
        super().__init__()
        self.kernels = kernels

    def forward(self, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        if self.kernels == 1:
            return x * w + 1
        for i in range(self.kernels):
            x = torch.softmax(x * w, i % 2)
        return x


class First(torch.nn.Module):
    """The first result of a model."""

    def __init__(self, model: torch.nn.Module):
        super().__init__()
        self.model = model

    def forward(self, *args: torch.Tensor) -> torch.Tensor:
        made = self.model(*args)
        return made if isinstance(made, torch.Tensor) else made[0]


Made = tuple[torch.nn.Module, list[list[torch.Tensor]]]  # a module and the arguments of its calls


def chain(kernels: int) -> Made:
    w = torch.randn(96)
    return Chain(kernels), [[torch.randn(64, 96), w] for _ in range(SETS)]


def bert() -> Made:
    from models import language

    model, (ids, mask) = language.bert_small()
    return First(model).to(torch.bfloat16), [[(ids + i) % 30000, mask] for i in range(SETS)]


CASES: dict[str, Callable[[], Made]] = {
    "1 kernel": lambda: chain(1),
    "8 kernels": lambda: chain(8),
    "BERT-small, bf16": bert,
}


def check(name: str, model: Any, sets: list[list[torch.Tensor]], exact: list[torch.Tensor], eager: list[torch.Tensor]) -> None:  # fmt: skip
    """Stop if a loaded model is further from float64 than twice eager, in Python's calls or in native ones."""
    worst = 0.0
    for args, x, e in zip(sets * 2, exact * 2, eager * 2):
        made = torch.from_dlpack(model(*args))
        errors = [float((y.double() - x).norm() / x.norm()) for y in (made, e)]
        assert errors[0] <= max(2 * errors[1], 2e-6), f"{name}: error {errors[0]:.1e}, eager's {errors[1]:.1e}"
        worst = max(worst, errors[0])
    print(f"{name}: error at most {worst:.1e}", flush=True)


def measure(name: str, folder: Path, prepare: bool) -> None:
    """Print the line of one case."""
    torch.manual_seed(0)
    module, sets = CASES[name]()
    path = folder / f"{name.replace(' ', '_')}.lamina"
    with torch.no_grad():
        if not path.exists():
            started = time.perf_counter()
            lamina.export(torch.export.export(module.eval(), tuple(sets[0])), targets=["sm_90a"]).save(path)
            print(f"{name}: compiled in {time.perf_counter() - started:.1f} s", flush=True)
        module, sets = module.cuda(), [[a.cuda() for a in args] for args in sets]
        eager = [module(*args) for args in sets]
        state = {n: t.clone() for n, t in module.state_dict().items()}
        exact = [module.double()(*[a.double() if a.is_floating_point() else a for a in args]) for args in sets]
        module.to(next(iter(state.values())).dtype if state else torch.float32).load_state_dict(state)
    plain, graphed = lamina.load(path, device="cuda:0"), lamina.load(path, device="cuda:0", graphs=True)
    for model in (plain, graphed):
        check(name, model, sets, exact, eager)
    if prepare:
        return
    stages = {kernel: len(header["stages"]) for kernel, (header, _) in plain.program._code.items()}  # type: ignore[union-attr]
    launches = sum(stages[row["kernel"]] for row in plain.plan["launches"])
    general = plain._caller.general  # type: ignore[union-attr]
    systems = {
        "eager": lambda args: module(*args),
        "Python": lambda args: general(0, *args),
        "native": lambda args: plain(*args),
        "graph": lambda args: graphed(*args),
    }
    calls = max(SETS, QUEUE // launches)
    rounds: dict[str, list[float]] = {n: [] for n in systems}
    with torch.no_grad():
        for number in range(ROUNDS + 1):
            for system, call in systems.items():
                torch.cuda.synchronize()
                start = time.perf_counter()
                for i in range(calls):
                    call(sets[i % SETS])
                if number:  # the first warms up
                    rounds[system].append((time.perf_counter() - start) * 1e6 / calls)
    medians = {n: round(statistics.median(t), 1) for n, t in rounds.items()}
    print(f"| {name} | {launches} | " + " | ".join(map(str, medians.values())) + " |", flush=True)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", help=f"of {', '.join(CASES)}")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--prepare", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        print("| case | launches | eager | Python | native | graph |\n|---|---|---|---|---|---|", flush=True)
        for name in given.cases or CASES:
            measure(name, folder, given.prepare)


if __name__ == "__main__":
    main()
