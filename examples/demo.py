"""ResNet-18, from torch to an artifact that runs without torch: what `make demo` runs.

1. export a real ResNet-18 (random weights) with torch.export and save `resnet18.pt2`;
2. compile the file on the command line to `resnet18.lamina`, with a dump of the IR after every pass;
3. run the artifact in a second Python that has numpy and no torch;
4. compare the values with eager and the speed of both.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch
from models.accuracy import compare, exact_calls
from models.resnet import resnet18

HERE = Path(__file__).parent
RUNS = 30


def step(text: str) -> None:
    print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n{text}", flush=True)


def call(*command: str | Path, text: str = "") -> str:
    """Run a command, echoing it; its output is returned, and its failure ends the demo with what it printed."""
    print("$", " ".join(map(str, command)), flush=True)
    done = subprocess.run([str(c) for c in command], input=text, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"the command above failed with status {done.returncode}\n{done.stdout}")
    return done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runtime-python", default=sys.executable, help="a Python with `pip install lamina` alone")
    parser.add_argument("--out", type=Path, default=Path("out/demo"))
    options = parser.parse_args()
    out: Path = options.out
    out.mkdir(parents=True, exist_ok=True)
    pt2, artifact, dump = out / "resnet18.pt2", out / "resnet18.lamina", out / "ir"

    step("1. export")
    torch.manual_seed(0)
    torch.set_num_threads(2)
    model = resnet18().eval()
    x = torch.randn(1, 3, 224, 224)
    torch.export.save(torch.export.export(model, (x,), strict=False), pt2)
    np.savez(out / "input.npz", **{"0.0": x.numpy()})
    print(f"{pt2}: {pt2.stat().st_size / 1e6:.1f} MB")

    step("2. compile")
    start = time.perf_counter()
    print(call(sys.executable, "-m", "lamina.tools.cli", "compile", pt2, "-o", artifact, "--dump-ir", dump), end="")
    print(f"{time.perf_counter() - start:.1f} s in all; {artifact}: {artifact.stat().st_size / 1e6:.1f} MB")

    step("3. run without torch")
    script = (HERE / "run_artifact.py", artifact, out / "input.npz", out / "output.npz")
    *seconds, facts = call(options.runtime_python, *script, text="\n" * RUNS).splitlines()
    ours_ms = statistics.median(map(float, seconds)) * 1e3
    print(f"torch importable there: {json.loads(facts)['torch']}; median of {RUNS} runs: {ours_ms:.2f} ms")

    step("4. compare with eager")
    with torch.no_grad():
        expected, (exact,) = model(x), exact_calls(model, [(x,)])
        times = []
        for _ in range(RUNS):
            start = time.perf_counter()
            model(x)
            times.append(time.perf_counter() - start)
    eager_ms = statistics.median(times) * 1e3
    found = compare(np.load(out / "output.npz")["0.0"], expected, exact)
    print(f"error against float64, relative to the output's scale: Lamina {found.error:.1e}, eager {found.eager:.1e}")
    print(f"speed on 2 threads: Lamina {ours_ms:.2f} ms, eager {eager_ms:.2f} ms,", end=" ")
    print(f"ratio {eager_ms / ours_ms:.2f}x")
    print(f"\nthe artifact: {artifact}\nthe IR after every pass: {dump}")
    sys.exit("; ".join(found.faults) + ": this is a bug" if found.faults else 0)


if __name__ == "__main__":
    main()
