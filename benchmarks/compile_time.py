"""Compile time and memory of BERT-base after capture: cold, warm in a second process, and Inductor, in one run.

"Graph to code" is the time from the graph that AOTAutograd hands over to a callable. "After capture" is what a first call,
weights packed and the model run once, takes above that of `aot_eager`, which has Dynamo and AOTAutograd capture the same
graph and then runs it in eager: a difference of captures, which vary by a second. `aot_eager` compiles a small model, then
this one twice, and the last time counts: what torch does once a process or once a model is in neither. Inductor is measured
where there is a g++, which it calls.
Memory is the peak of the PSS summed over our processes, less that of the process before compiling.
`python benchmarks/compile_time.py` writes benchmarks/results/compile_time.md.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "examples"))


def pss(pid: int) -> int:
    """Bytes of proportional set size of a process and its descendants."""
    import psutil

    total = 0
    try:
        processes = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0
    for process in processes:
        try:
            for line in Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1]) * 1024
        except (OSError, psutil.Error):
            pass
    return total


def child(backend: str, name: str) -> None:
    """Compile one model in this process and print the seconds in the backend and the peak memory as JSON."""
    import torch
    import torch._dynamo
    from models import SMALL, ZOO
    from torch._functorch import aot_autograd  # noqa: F401

    torch.set_num_threads(2)
    torch.manual_seed(0)
    model, args = ZOO[name]()
    model.eval()
    spent = {}
    with torch.no_grad():
        small, inputs = SMALL[name if name in SMALL else "bert_small"]()
        torch.compile(small, backend="aot_eager")(*inputs)
        base = pss(os.getpid())
        peak, stop = [base], threading.Event()

        def watch():
            while not stop.wait(0.25):  # reading the maps of a process holds it up
                peak[0] = max(peak[0], pss(os.getpid()))

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        building = note_building(backend)
        for which in ("aot_eager", "aot_eager", backend):
            torch._dynamo.reset()
            start = time.perf_counter()
            torch.compile(model, backend=which)(*args)
            spent[which] = time.perf_counter() - start
        stop.set()
    found = {"capture": spent["aot_eager"], "whole": spent[backend], "peak": peak[0] - base, "code": building()}
    print(json.dumps(found))


def note_building(backend: str) -> Callable[[], float]:
    """What says afterwards for how many seconds `backend` made code of graphs of AOTAutograd's."""
    if backend != "lamina":
        from torch._dynamo.utils import compilation_time_metrics

        return lambda: sum(compilation_time_metrics.get("compile_fx_inner", ()))
    from lamina.frontend import dynamo

    building, build = list[float](), dynamo.build

    def noted(*args: Any, **keywords: Any) -> Any:
        start = time.perf_counter()
        made = build(*args, **keywords)
        building.append(time.perf_counter() - start)
        return made

    dynamo.build = noted
    return lambda: sum(building)


def run(backend: str, model: str, cache: str) -> dict:
    environment = {**os.environ, "LAMINA_CACHE_DIR": cache, "TORCHINDUCTOR_CACHE_DIR": cache}
    command = [sys.executable, __file__, "--child", backend, "--model", model]
    out = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
    return json.loads(out.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--child")
    parser.add_argument("--model", default="bert_base")
    options = parser.parse_args()
    if options.child:
        return child(options.child, options.model)
    from timing import write

    rows = ["| | capture s | whole s | after capture s | graph to code s | peak MB |", "|---|---|---|---|---|---|"]
    results = {}
    with tempfile.TemporaryDirectory() as ours, tempfile.TemporaryDirectory() as theirs:
        runs = [("cold", "lamina", ours), ("warm", "lamina", ours)]
        if shutil.which("g++"):
            runs.append(("Inductor, cold", "inductor", theirs))
        for label, backend, cache in runs:
            r = run(backend, options.model, cache)
            after = r["whole"] - r["capture"]
            results[label] = r["code"]
            times = [f"{t:.2f}" for t in (r["capture"], r["whole"], after, r["code"])]
            rows.append(f"| {' | '.join([label, *times])} | {r['peak'] / 1e6:.0f} |")
    if "Inductor, cold" in results:
        rows += ["", f"cold Lamina / cold Inductor, graph to code: {results['cold'] / results['Inductor, cold']:.2f}"]
    else:
        rows += ["", "Inductor was not measured: it needs g++, and there is none here."]
    write("compile_time", f"Compile time of {options.model}", " ".join(["python", *sys.argv]), rows)


if __name__ == "__main__":
    main()
