"""Cold compile time of whole models in bf16 on an NVIDIA GPU, beside Inductor's.

    python benchmarks/gpu_compile.py [--rounds 2] [--at-once] [--train] [--device cpu --small] [--deadline 600] [MODEL …]

A time is that of the first call of `torch.compile(model)`, everything included, in a process that has compiled nothing
before, with empty caches: each compilation has a process of its own. The processes make their models at once; then they
compile one after the other, so that each has all cores, or with `--at-once` all models of a system at a time. The median of
rounds counts. "capture" is the part of ours until AOTAutograd hands over its graph, which Inductor has too.

"apart" is the norm of the difference from eager relative to that of eager's results, both in bf16. "MB" is the peak of
torch's allocator in a later call, weights and what was made of them included. With `--train` a call has gradients, and the
backward pass from random gradients of what the model returns is part of it.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gpu_models import MODELS
from model_process import answers, line_within, make_model, own_caches

SYSTEMS = ("lamina", "inductor")
TRAINED = ("bert_base", "gpt2_small", "vit_base", "resnet50")  # the others write a cache
STEP = 120  # seconds that a process may take for one step


def serve(name: str, system: str, options: argparse.Namespace) -> None:
    """The process of one compilation: says that it is ready, waits for a line, compiles, and prints what it found."""
    stdout = answers()
    import torch

    torch.set_grad_enabled(options.train)
    called = Called(name, options)
    eager = [t.clone() for t in called.call(called.model)]
    eager_peak = called.peak(called.model)
    print("ready", file=stdout, flush=True)
    sys.stdin.readline()
    start = time.perf_counter()
    captured = note_capture() if system == "lamina" else [math.nan]
    compiled = torch.compile(called.model, backend=system, dynamic=False)
    results = called.call(compiled)
    seconds = time.perf_counter() - start
    pairs = [(a, b) for a, b in zip(results, eager, strict=True) if b.is_floating_point()]
    squares = [(float((a - b).float().square().sum()), float(b.float().square().sum())) for a, b in pairs]
    apart = math.sqrt(sum(d for d, _ in squares) / sum(s for _, s in squares))
    del results, pairs
    found = {"seconds": seconds, "capture": captured[0] - start, "apart": apart}
    found |= {"peak": called.peak(compiled), "eager": eager_peak}
    print(json.dumps(found), file=stdout, flush=True)


class Called:
    """A call of one model in bf16, with its gradients where options say so."""

    def __init__(self, name: str, options: argparse.Namespace):
        import torch

        (path, arguments), less = MODELS[name]
        made, given = make_model(path, {**arguments, **(less if options.small else {})}, options.device)
        self.torch, self.train, self.on_gpu = torch, options.train, options.device == "cuda"
        self.model = made.to(torch.bfloat16).eval()
        self.given = [a.bfloat16() if a.is_floating_point() else a for a in given]

    def call(self, function: Callable[..., Any]) -> list[Any]:
        """What a call of the model, or of one compiled from it, returns and, of a training step, the gradients."""
        from models.accuracy import flat

        outputs = function(*self.given)
        results = self.gradients(outputs) if self.train else flat(outputs)
        if self.on_gpu:
            self.torch.cuda.synchronize()
        return results

    def gradients(self, outputs: Any) -> list[Any]:
        """Those of the parameters from random gradients of the outputs."""
        from torch.utils import _pytree as pytree

        self.model.zero_grad()
        leaves = pytree.tree_leaves(outputs)
        floats = [t for t in leaves if isinstance(t, self.torch.Tensor) and t.requires_grad]
        self.torch.manual_seed(0)
        self.torch.autograd.backward(floats, [self.torch.randn_like(t) for t in floats])
        return [p.grad for p in self.model.parameters() if p.grad is not None]

    def peak(self, function: Callable[..., Any]) -> float:
        """MB that a call takes at most."""
        if not self.on_gpu:
            return math.nan
        self.torch.cuda.reset_peak_memory_stats()
        self.call(function)
        return self.torch.cuda.max_memory_allocated() / 1e6


def note_capture() -> list[float]:
    """Load our backend, as torch.compile does, and return the list whose item will be when a graph is captured."""
    from lamina.frontend import dynamo

    captured, build = [math.nan], dynamo.build

    def noted(*args: Any, **keywords: Any) -> Any:
        if math.isnan(captured[0]):  # of a training step the forward pass is first
            captured[0] = time.perf_counter()
        return build(*args, **keywords)

    dynamo.build = noted
    return captured


class Process:
    """One compilation as the parent sees it."""

    def __init__(self, name: str, system: str, options: argparse.Namespace, folder: Path):
        command = [sys.executable, __file__, "--serve", name, system, "--device", options.device]
        command += [f"--{flag}" for flag in ("small", "train") if getattr(options, flag)]
        self.name, self.system = name, system
        self.process = subprocess.Popen(
            command, env=own_caches(folder), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def line(self, deadline: float) -> str:
        """The next line; "" if there is none in time."""
        assert self.process.stdout
        left = min(STEP, deadline - time.monotonic())
        return line_within(self.process.stdout, left) or ""

    def go(self) -> None:
        """Let it compile."""
        assert self.process.stdin
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def stop(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()


def round_of(options: argparse.Namespace, folder: Path) -> list[tuple[str, str, dict[str, float]]]:
    """Compile every model with every system once: (model, system, what was found)."""
    names, end = options.models or (TRAINED if options.train else list(MODELS)), options.end
    pairs = [(n, s) for n in names for s in SYSTEMS]
    processes = [Process(n, s, options, folder / f"{n}-{s}") for n, s in pairs]
    found = []
    try:
        ready = [p for p in processes if p.line(end)]
        groups = [[p for p in ready if p.system == s] for s in SYSTEMS] if options.at_once else [[p] for p in ready]
        for group in groups:
            for process in group:
                process.go()
            for process in group:
                if line := process.line(end):
                    found.append((process.name, process.system, json.loads(line)))
                    print(process.name, process.system, line.strip(), flush=True)
                process.stop()
    finally:
        for process in processes:
            process.stop()
    return found


def table(found: Sequence[tuple[str, str, dict[str, float]]]) -> list[str]:
    """Medians by model, ratios, and their geometric mean."""
    lines = [
        "| model | capture s | Lamina s | Inductor s | Lamina / Inductor | apart from eager | Lamina MB | Inductor MB | eager MB |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    ratios = []
    for name in dict.fromkeys(n for n, _, _ in found):

        def median(system: str, fact: str, name: str = name) -> float:
            values = [facts[fact] for n, s, facts in found if (n, s) == (name, system)]
            return statistics.median(values) if values else math.nan

        ours, theirs = median("lamina", "seconds"), median("inductor", "seconds")
        ratios += [ours / theirs] if theirs > 0 else []
        cells = [f"{median('lamina', 'capture'):.2f}", f"{ours:.2f}", f"{theirs:.2f}", f"{ours / theirs:.2f}"]
        cells.append(f"{median('lamina', 'apart'):.1e}")
        peaks = (("lamina", "peak"), ("inductor", "peak"), ("lamina", "eager"))
        cells += [f"{median(*where):.0f}" for where in peaks]
        lines.append(f"| {' | '.join([name, *cells])} |")
    if ratios:
        mean = math.exp(statistics.mean(map(math.log, ratios)))
        lines += ["", f"Geometric mean of Lamina / Inductor over {len(ratios)} models: {mean:.2f}"]
    return lines


def main() -> None:
    """Run the table, or one compilation's process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--small", action="store_true", help="tiny models, to try this script")
    parser.add_argument("--train", action="store_true", help="with gradients")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--at-once", action="store_true", help="all models of a system at a time")
    parser.add_argument("--deadline", type=float, default=3600, help="seconds after which what is there is reported")
    parser.add_argument("--serve", nargs=2, metavar=("MODEL", "SYSTEM"), help=argparse.SUPPRESS)
    parser.add_argument("models", nargs="*", help=f"of {', '.join(MODELS)}")
    options = parser.parse_args()
    if options.serve:
        return serve(*options.serve, options)
    options.end = time.monotonic() + options.deadline
    found: list[tuple[str, str, dict[str, float]]] = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as caches:
        for number in range(options.rounds):
            if time.monotonic() < options.end:
                found += round_of(options, Path(caches) / str(number))
    print("\n".join(table(found)))


if __name__ == "__main__":
    main()
