"""Models of the zoo on a CPU by several systems (`systems/`): values against float64, then the time of a call, in turn.

`python benchmarks/peers.py [--threads N] [MODEL …]` measures, appends a line for each measurement to out/peers.jsonl and writes
benchmarks/results/peers.md from all that is there: of equal ones the last counts. It needs the packages of the extra `peers`.

Each system has a process of its own, compiles while the others sleep, and is stopped (SIGSTOP) when it is not its turn, so that no
thread that spins disturbs another. `--prefix COMMAND` is put before the command that times, for machines that others use.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Client
from pathlib import Path
from typing import Any

from model_process import line_within, own_caches
from systems import SYSTEMS
from timing import write

HERE = Path(__file__).resolve().parent
KEPT = HERE.parent / "out" / "peers.jsonl"
OURS = ("lamina", "lamina_file")
TURN = 0.1  # seconds of counted calls, after as many that are not


class Worker:
    """A system's process: compiled and stopped, or why it could not."""

    def __init__(self, system: str, model: str, threads: int, folder: Path, limit: float):
        self.system = system
        command = [sys.executable, "-m", "systems.worker", system, model, str(threads), str(folder)]
        self.log = folder / f"{system}.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                command,
                cwd=HERE,
                env=own_caches(folder),
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                text=True,
            )
        self.facts: dict[str, Any] = self._answer(limit) or {"reason": "no result in time"}
        if "reason" not in self.facts:
            os.killpg(self.process.pid, signal.SIGSTOP)

    def _answer(self, limit: float) -> dict[str, Any] | None:
        """What the process found, for which it has `limit` seconds."""
        assert self.process.stdout
        line = line_within(self.process.stdout, limit)
        if line is None:
            return None
        if not line:
            last = self.log.read_text().strip().splitlines()[-1:]
            return {"reason": f"the process ended with status {self.process.wait()}: {' '.join(last)}"}
        return json.loads(line)

    def close(self) -> None:
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()


@contextmanager
def running(pid: int) -> Iterator[None]:
    """Let a group of processes run meanwhile."""
    os.killpg(pid, signal.SIGCONT)
    try:
        yield
    finally:
        os.killpg(pid, signal.SIGSTOP)


def take_turns(folder: Path, rounds: int) -> dict[str, list[float]]:
    """Seconds of the calls of each system of `folder`/workers.json, in turns of `TURN` seconds."""
    workers: dict[str, int] = json.loads((folder / "workers.json").read_text())
    times: dict[str, list[float]] = {name: [] for name in workers}
    connections = {name: Client(str(folder / f"{name}.socket")) for name in workers}
    for _ in range(rounds):
        for name, pid in workers.items():
            if name not in connections:
                continue
            with running(pid):
                try:
                    connections[name].send(TURN)
                    times[name].extend(connections[name].recv())
                except (EOFError, ConnectionError):  # it crashed: the others go on
                    connections.pop(name).close()
    return {name: times[name] for name in connections}


def errors(model: str, systems: Sequence[str], folder: Path) -> dict[str, tuple[float, bool]]:
    """Of each system the largest error relative to the output's scale, and whether examples/models/accuracy.py allows it."""
    import numpy as np
    import torch
    from model_process import zoo_model

    made, args = zoo_model(model)
    made.eval()
    from models.accuracy import compare, exact_calls, flat

    found = {}
    with torch.no_grad():
        (exact,) = exact_calls(made, [args])
        eager = flat(made(*args))
        for system in systems:
            with np.load(folder / f"{system}.npz") as arrays:
                outputs = [torch.from_numpy(arrays[f"arr_{i}"]) for i in range(len(eager))]
            accuracy = compare(outputs, eager, exact)
            found[system] = accuracy.error, not accuracy.faults
    return found


def measure(model: str, threads: int, systems: Sequence[str], options: argparse.Namespace) -> list[dict[str, Any]]:
    """A record for each system: its error, time and compile time, or the reason why there are none."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        workers = []
        for system in systems:
            workers.append(Worker(system, model, threads, folder, options.limit))
            stack.callback(workers[-1].close)
            print(f"{model}, {threads} threads, {system}: {workers[-1].facts}", flush=True)
        ready = {w.system: w.process.pid for w in workers if "reason" not in w.facts}
        found = errors(model, list(ready), folder)
        (folder / "workers.json").write_text(json.dumps(ready))
        command = [*shlex.split(options.prefix), sys.executable, __file__, "--turns", str(folder)]
        command += ["--rounds", str(options.rounds)]
        times = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    records = []
    for worker in workers:
        record = {"model": model, "threads": threads, "system": worker.system, **worker.facts}
        if worker.system in found:
            record["error"], record["right"] = found[worker.system]
            if worker.system in times:
                record["ms"] = statistics.median(times[worker.system]) * 1e3
            else:
                record["reason"] = "the process ended while it was timed"
        records.append(record)
        print({k: record[k] for k in ("system", "ms", "error", "right", "processor") if k in record}, flush=True)
    return records


def tables(records: Sequence[dict[str, Any]]) -> list[str]:
    """Times of calls and of compiling by model and system, with geometric means; then what failed."""
    last = {(r["threads"], r["model"], r["system"]): r for r in records}
    systems = [s for s in SYSTEMS if any(key[2] == s for key in last)]
    lines = [f"* {system}: {SYSTEMS[system]}" for system in systems]
    for threads in sorted({key[0] for key in last}, reverse=True):
        models = list(dict.fromkeys(key[1] for key in last if key[0] == threads))
        found = {m: {s: last.get((threads, m, s), {}) for s in systems} for m in models}
        lines += ["", f"## Milliseconds of a call, {threads} thread{'s' * (threads > 1)}", ""]
        lines += _table(found, "ms", "{:.2f}", "best peer / best Lamina", _lead)
        if threads > 1:
            lines += ["", "## Seconds of processors to export and compile, the first call included", ""]
            lines += _table(found, "processor", "{:.1f}")
            lines += ["", "## Errors against float64, relative to the output's scale", ""]
            lines += _table(found, "error", "{:.1e}")
    failed = [f"* {m}, {t} threads, {s}: {r['reason']}" for (t, m, s), r in last.items() if "reason" in r]
    wrong = [
        f"* {m}, {t} threads, {s}: error {r['error']:.1e}" for (t, m, s), r in last.items() if not r.get("right", True)
    ]
    return lines + (["", "## What failed", "", *failed, *wrong] if failed or wrong else [])


def _table(
    found: Mapping[str, Mapping[str, dict[str, Any]]],
    field: str,
    form: str,
    last: str = "",
    extra: Callable[[Mapping[str, dict[str, Any]]], str] | None = None,
) -> list[str]:
    """A row for each model with `field` of each system, and `extra` of the row; times end in geometric means over Lamina's."""
    systems = list(next(iter(found.values())))
    lines = [f"| model | {' | '.join(systems)} |" + f" {last} |" * bool(extra)]
    lines.append("|" + "---|" * (len(systems) + 1 + bool(extra)))
    for model, row in found.items():
        cells = [form.format(row[s][field]) if field in row[s] else "–" for s in systems]
        lines.append(f"| {' | '.join([model, *cells])} |" + (f" {extra(row)} |" if extra else ""))
    if extra:
        means = []
        for s in systems:
            both = [
                (row[s][field], row[OURS[0]][field])
                for row in found.values()
                if field in row[s] and field in row[OURS[0]]
            ]
            means.append(f"{statistics.geometric_mean(t / ours for t, ours in both):.2f}" if both else "–")
        lines.append(f"| {' | '.join([f'geometric mean, {OURS[0]} 1', *means])} | |")
    return lines


def _lead(row: Mapping[str, dict[str, Any]]) -> str:
    """How many times as long as Lamina's better way the best other system takes, and which it is."""
    times = {s: r["ms"] for s, r in row.items() if "ms" in r}
    ours = min((t for s, t in times.items() if s in OURS), default=None)
    best = min((s for s in times if s not in OURS), key=lambda s: times[s], default=None)
    return f"{times[best] / ours:.2f} {best}" if ours and best else "–"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help="models of the zoo; without any, only the table is written")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--systems", default=",".join(SYSTEMS), help=f"of {', '.join(SYSTEMS)}")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each system")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for a system to compile a model")
    parser.add_argument("--prefix", default="", help="a command that runs the command that times")
    parser.add_argument("--turns", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.turns:
        print(json.dumps(take_turns(options.turns, options.rounds)))
        return
    KEPT.parent.mkdir(exist_ok=True)
    for model in options.models:
        with KEPT.open("a") as kept:
            for record in measure(model, options.threads, options.systems.split(","), options):
                kept.write(json.dumps(record) + "\n")
    records = [json.loads(line) for line in KEPT.read_text().splitlines()]
    write("peers", "Models by several systems, CPU, f32", " ".join(["python", *sys.argv]), tables(records))


if __name__ == "__main__":
    main()
