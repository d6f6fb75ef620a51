"""Whole models on two threads: Lamina against eager and Inductor, values first, then time.

`python benchmarks/models.py [--inductor] [MODEL …]` writes benchmarks/results/models.md.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))
from models import ZOO  # noqa: E402
from models.accuracy import compare, exact_calls  # noqa: E402
from timing import interleaved, table, write  # noqa: E402


def measure(name: str, inductor: bool) -> str:
    torch.manual_seed(0)
    torch._dynamo.reset()
    model, args = ZOO[name]()
    model.eval()
    with torch.no_grad(), torch._dynamo.config.patch(allow_rnn=True):
        (exact,) = exact_calls(model, [args])
        eager = model(*args)
        ours = torch.compile(model, backend="lamina")
        found = compare(ours(*args), eager, exact)
        calls = {"lamina": lambda: ours(*args), "eager": lambda: model(*args)}
        if inductor:
            torch_default = torch.compile(model, backend="inductor")
            torch_default(*args)
            calls["inductor"] = lambda: torch_default(*args)
        t = interleaved(calls, 2.5)
    ratio = t["eager"].median / t["lamina"].median
    for fault in found.faults:
        print(f"{name}: {fault}")
    row = f"| {name} | {found.error:.1e} | {found.eager:.1e} | {t['lamina'].median * 1e3:.2f} | {t['eager'].median * 1e3:.2f} | {ratio:.2f} |"
    if inductor:
        row += f" {t['inductor'].median * 1e3:.2f} | {t['inductor'].median / t['lamina'].median:.2f} |"
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inductor", action="store_true", help="time torch.compile's default backend too")
    parser.add_argument("models", nargs="*", default=[], help=f"of {', '.join(ZOO)}")
    options = parser.parse_args()
    torch.set_num_threads(2)
    head = "| model | error | eager's error | Lamina ms | eager ms | eager / Lamina |"
    if options.inductor:
        head += " Inductor ms | Inductor / Lamina |"
    lines = table(head, (measure(name, options.inductor) for name in options.models or ZOO))
    lines += ["", "Errors are against the same model in float64, relative to the output's scale; times are medians."]
    write("models", "Whole models, CPU, two threads", " ".join(["python", *sys.argv]), lines)


if __name__ == "__main__":
    main()
