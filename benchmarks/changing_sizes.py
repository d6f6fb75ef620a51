"""Language models whose batch and length change from call to call: graphs, compile time, time of calls, beside Inductor.

    python benchmarks/changing_sizes.py [--device cuda] [--small] [--new 30] [MODEL …]

`torch.compile(model)` as users write it, in a process of its own for each model and system, with empty caches. First come
eight sizes, which let Dynamo see what changes: "graphs" are those that it had compiled after them, "compiling" the seconds
that these calls took. All outputs are compared with eager's. Then come `--new` sizes that no call had before, each once and
each eager's turn with it, and then the same again. Of the times, which end on a GPU when all is launched ("host") and when it
is done, the medians count.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from model_process import make_model, own_caches

SYSTEMS = ("lamina", "inductor")
FIRST = ((2, 40), (3, 24), (2, 64), (4, 33), (1, 50), (5, 17), (1, 96), (3, 80))  # batch, length
# name: (model of examples/models, its arguments, the same small); Llama's cache has one batch
MODELS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "bert": ("language.bert_base", {}, {}),
    "gpt2": ("language.gpt2_small", {}, {"layers": 1, "width": 48, "vocabulary": 100}),
    "llama": ("llama.prefill", {"width": 2048, "layers": 8}, {"width": 64, "layers": 1, "vocabulary": 100}),
}
SMALL_BERT = ("language.bert_small", {"layers": 1, "width": 64, "vocabulary": 100})


def serve(name: str, system: str, options: argparse.Namespace) -> None:
    """The process of one model and system; prints what it found."""
    if system == "lamina":
        import lamina.frontend.dynamo  # noqa: F401
    print(json.dumps(Served(name, system, options).run(options.new)))


class Served:
    """One model under one system, with all that its calls have shown."""

    def __init__(self, name: str, system: str, options: argparse.Namespace):
        import torch

        path, arguments, less = MODELS[name]
        if options.small:
            path, arguments = SMALL_BERT if name == "bert" else (path, {**arguments, **less})
        self.torch, self.name, self.on_gpu = torch, name, options.device == "cuda"
        self.model, self.given = make_model(path, {**arguments, "length": 512}, options.device)
        self.model.to(torch.bfloat16 if self.on_gpu else torch.float32)
        self.compiled, self.apart = torch.compile(self.model, backend=system), 0.0

    def run(self, new: int) -> dict[str, float]:
        """Call with the first sizes, then with `new` ones, twice."""
        compiling, times = 0.0, dict[str, list[float]]()
        with self.torch.no_grad():
            for batch, length in FIRST:
                _, (_, seconds) = self.compare(batch, length)
                compiling += seconds
            graphs = self.graphs()
            for seen in ("new", "again"):
                for n in range(new):
                    for which, (host, seconds) in zip(("eager", seen), self.compare(2 + n % 3, 100 + 3 * n)):
                        times.setdefault(f"{which} host", []).append(host)
                        times.setdefault(which, []).append(seconds)
        medians = {key: statistics.median(values) * 1e3 for key, values in times.items()}
        later = self.graphs() - graphs
        return {"graphs": graphs, "later": later, "compiling": compiling, "apart": self.apart, **medians}

    def compare(self, batch: int, length: int) -> tuple[tuple[float, float], tuple[float, float]]:
        """Eager's seconds for these sizes and the system's, each on the host and until the work is done."""
        args = self.inputs(batch, length)
        *eager, expected = self.timed(self.model, args)
        expected = [t.clone() for t in expected]  # before a cache is written again
        *ours, found = self.timed(self.compiled, args)
        apart = max(float((a - b).abs().max() / b.abs().max()) for a, b in zip(found, expected, strict=True))
        self.apart = max(self.apart, apart)
        return (eager[0], eager[1]), (ours[0], ours[1])

    def inputs(self, batch: int, length: int) -> list[Any]:
        """Arguments of these sizes."""
        if self.name == "llama":  # tokens, positions
            return [self.given[0][:, :length], self.given[1][:length]]
        return [t[:1, :length].expand(batch, length).contiguous() for t in self.given]

    def timed(self, function: Callable[..., Any], args: Sequence[Any]) -> tuple[float, float, list[Any]]:
        """Seconds until a call returns, and until its work is done; the outputs."""
        from models.accuracy import flat

        start = time.perf_counter()
        out = function(*args)
        host = time.perf_counter() - start
        if self.on_gpu:
            self.torch.cuda.synchronize()
        return host, time.perf_counter() - start, flat(out)

    def graphs(self) -> int:
        """The graphs that Dynamo has compiled."""
        return self.torch._dynamo.utils.counters["stats"]["unique_graphs"]


def row(name: str, system: str, found: dict[str, float]) -> str:
    """A line of the table."""
    cells = [name, system, f"{found['graphs']:.0f} + {found['later']:.0f}", f"{found['compiling']:.1f}"]
    cells += [f"{found[k]:.2f}" for k in ("new host", "again host", "eager host", "new", "again", "eager")]
    return f"| {' | '.join(cells)} | {found['apart']:.1e} |"


def main() -> None:
    """Run the table, or one process of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=("cuda", "cpu"))
    parser.add_argument("--small", action="store_true", help="tiny models")
    parser.add_argument("--new", type=int, default=30, help="sizes that no call had before")
    parser.add_argument("--serve", nargs=2, metavar=("MODEL", "SYSTEM"), help=argparse.SUPPRESS)
    parser.add_argument("models", nargs="*", help=f"of {', '.join(MODELS)}")
    options = parser.parse_args()
    if options.serve:
        return serve(*options.serve, options)
    print(
        "| model | | graphs | compiling s | new ms, host | again, host | eager, host | new ms | again | eager | apart |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|", flush=True)
    for name in options.models or MODELS:
        for system in SYSTEMS:
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as caches:
                command = [sys.executable, __file__, "--serve", name, system, "--device", options.device]
                command += ["--new", str(options.new), *(["--small"] if options.small else [])]
                done = subprocess.run(command, env=own_caches(Path(caches)), stdout=subprocess.PIPE, text=True)
            print(
                row(name, system, json.loads(done.stdout.splitlines()[-1]))
                if done.stdout
                else f"{name} {system} failed"
            )
            sys.stdout.flush()


if __name__ == "__main__":
    main()
