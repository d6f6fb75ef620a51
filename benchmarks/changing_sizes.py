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
    import torch

    if system == "lamina":
        import lamina.frontend.dynamo  # noqa: F401
    path, arguments, less = MODELS[name]
    if options.small:
        path, arguments = SMALL_BERT if name == "bert" else (path, {**arguments, **less})
    on_gpu = options.device == "cuda"
    model, given = make_model(path, {**arguments, "length": 512}, options.device)
    from models.accuracy import flat

    model.to(torch.bfloat16 if on_gpu else torch.float32)

    def inputs(batch: int, length: int) -> list[Any]:
        if name == "llama":  # tokens, positions
            return [given[0][:, :length], given[1][:length]]
        return [t[:1, :length].expand(batch, length).contiguous() for t in given]

    def timed(function: Callable[..., Any], given: Sequence[Any]) -> tuple[float, float, list[Any]]:
        """Seconds until the call returns, and until its work is done; the outputs."""
        start = time.perf_counter()
        out = function(*given)
        host = time.perf_counter() - start
        if on_gpu:
            torch.cuda.synchronize()
        return host, time.perf_counter() - start, flat(out)

    def compare(ours: list[Any], eager: list[Any]) -> float:
        return max(float((a - b).abs().max() / b.abs().max()) for a, b in zip(ours, eager, strict=True))

    compiled, apart, first = torch.compile(model, backend=system), 0.0, 0.0
    with torch.no_grad():
        for batch, length in FIRST:
            args = inputs(batch, length)
            expected = [t.clone() for t in flat(model(*args))]
            _, seconds, out = timed(compiled, args)
            first += seconds
            apart = max(apart, compare(out, expected))
        graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
        times: dict[str, list[float]] = {}
        for seen in ("new", "again"):
            for n in range(options.new):
                args = inputs(2 + n % 3, 100 + 3 * n)
                expected = timed(model, args)
                found = timed(compiled, args)
                apart = max(apart, compare(found[2], expected[2]))
                for which, values in (("eager", expected), (seen, found)):
                    times.setdefault(f"{which} host", []).append(values[0])
                    times.setdefault(which, []).append(values[1])
    more = torch._dynamo.utils.counters["stats"]["unique_graphs"] - graphs
    medians = {key: statistics.median(values) * 1e3 for key, values in times.items()}
    print(json.dumps({"graphs": graphs, "later": more, "compiling": first, "apart": apart, **medians}))


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
