"""A compiled step of an optimiser for a small network on the CPU: python benchmarks/optimizer_step.py [--backend inductor]

`torch.compile(optimizer.step)` against `optimizer.step`, in turns, on the same gradients; parameters are compared first.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import nn

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "Adam": lambda parameters: torch.optim.Adam(parameters, 1e-3),
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, 1e-3),
    "SGD, momentum": lambda parameters: torch.optim.SGD(parameters, 1e-3, momentum=0.9),
}
ROUNDS, CALLS = 15, 30


def made(make: Callable[..., torch.optim.Optimizer]) -> tuple[nn.Module, torch.optim.Optimizer]:
    """A network of three layers with gradients, and its optimiser; each time the same."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    for p in network.parameters():
        p.grad = torch.randn_like(p)
    return network, make(network.parameters())


def row(step: Callable[[], object]) -> float:
    """Microseconds a call."""
    start = time.perf_counter()
    for _ in range(CALLS):
        step()
    return (time.perf_counter() - start) / CALLS * 1e6


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="lamina")
    backend = parser.parse_args().backend
    print(f"| optimiser | {backend} µs, median (minimum) | eager µs | eager / {backend} |\n|---|---|---|---|")
    for name, make in OPTIMIZERS.items():
        torch._dynamo.reset()
        (network, eager), (other, compiled) = made(make), made(make)
        step = torch.compile(compiled.step, backend=backend)
        for _ in range(3):
            eager.step()
            step()
        for a, b in zip(network.parameters(), other.parameters()):
            torch.testing.assert_close(a, b)
        times: dict[str, list[float]] = {"ours": [], "eager": []}
        for _ in range(ROUNDS):
            times["ours"].append(row(step))
            times["eager"].append(row(eager.step))
        ours, theirs = (f"{statistics.median(t):.0f} ({min(t):.0f})" for t in times.values())
        ratio = statistics.median(times["eager"]) / statistics.median(times["ours"])
        print(f"| {name} | {ours} | {theirs} | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()
