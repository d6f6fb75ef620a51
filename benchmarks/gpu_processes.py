"""What benchmarks of whole models on a GPU share: a process for each model, their clocks, and the command line.

A process has its own caches, so that a fault in one model leaves the others alone. First all compile with Lamina, at once;
then each in turn is timed; then all compile with the next system, and each in turn is timed again, beside all before.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from model_process import answers, line_within, own_caches

TOP = 12  # kernels named in a profile
STEP = 150  # seconds that a process may take for one step

Make = Callable[
    [str, str, bool], Any
]  # a model's name, its device, small or not: what `serve` asks to compile and time
Table = Callable[[dict[str, dict[str, Any]]], list[str]]  # the lines of the report, of what is known of each model


def serve(make: Make, name: str, options: argparse.Namespace) -> None:
    """The process of a model: a command a line on stdin, an answer a line on stdout."""
    stdout = answers()

    def answer(do: Callable[[], Any]) -> None:
        try:
            found = do()
        except Exception as error:
            traceback.print_exc()
            found = {"failed": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}
        print(json.dumps(found), file=stdout, flush=True)

    model: list[Any] = []
    for line in sys.stdin:
        word, _, rest = line.strip().partition(" ")
        do: dict[str, Callable[[], Any]] = {
            "make": lambda: model.append(make(name, options.device, options.small)),
            "compile": lambda rest=rest: model[0].compile(rest),
            "time": lambda: model[0].time(options.seconds),
            "profile": lambda rest=rest: model[0].profile(rest),
        }
        with model[0].torch.no_grad() if model else contextlib.nullcontext():
            answer(do[word])


class Process:
    """A model's process as the parent sees it; after a failed step it is left alone."""

    def __init__(self, script: str, name: str, options: argparse.Namespace, caches: Path):
        folder = caches / name
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, script, "--serve", name, "--device", options.device]
        command += ["--seconds", str(options.seconds), *(["--small"] if options.small else [])]
        self.name, self.deadline, self.lost = name, options.end, ""
        self.log = open(folder / "log", "w+")  # noqa: SIM115
        self.process = subprocess.Popen(
            command,
            env=own_caches(folder),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
        )

    def ask(self, command: str) -> None:
        """Give a command whose answer `result` reads."""
        with contextlib.suppress(BrokenPipeError):
            assert self.process.stdin
            self.process.stdin.write(command + "\n")
            self.process.stdin.flush()

    def result(self) -> Any:
        """The answer; None if the process has failed, then or before."""
        if self.lost:
            return None
        assert self.process.stdout
        left = min(STEP, self.deadline - time.monotonic())
        line = line_within(self.process.stdout, left)
        answer = json.loads(line) if line else {"failed": "no answer in time" if line is None else "the process ended"}
        if isinstance(answer, dict) and "failed" in answer:
            self.lost = answer["failed"]
            self.log.seek(0)
            print(f"{self.name}: {self.lost}\n{self.log.read()[-1500:]}", flush=True)
            return None
        return answer

    def do(self, command: str) -> Any:
        """A command and its answer."""
        self.ask(command)
        return self.result()

    def stop(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()
        self.log.close()


def together(processes: Sequence[Process], command: str) -> dict[str, Any]:
    """What all processes answer to a command that they carry out at once."""
    running = [p for p in processes if not p.lost]
    for process in running:
        process.ask(command)
    return {p.name: answer for p in running if (answer := p.result()) is not None}


def shares(name: str, rows: Sequence[tuple[str, int, float]]) -> list[str]:
    """A model's kernels by the time they take."""
    total = sum(r[2] for r in rows)
    lines = ["", f"`{name}`: {sum(r[1] for r in rows)} launches, {total:.0f} us on the device", ""]
    return lines + [f"* {us / total:5.1%} {us:8.1f} us, {count} x `{key[:90]}`" for key, count, us in rows[:TOP]]


def run(options: argparse.Namespace, script: str, table: Table) -> list[str]:
    """All models, each in a process of `script`; the lines of the report."""
    found: dict[str, dict[str, Any]] = {}
    profiles: list[str] = []
    start = time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - start:5.1f} s] {text}", flush=True)

    with contextlib.ExitStack() as stack:
        caches = options.caches or stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
        processes = [Process(script, name, options, Path(caches)) for name in options.models or options.choice]
        try:
            for process in processes:
                process.ask("make")
            for process in processes:
                process.result()
            for backend in options.systems.split(","):
                say(f"compile with {backend}")
                for name, facts in together(processes, f"compile {backend}").items():
                    found.setdefault(name, {})[backend] = facts
                    say(f"{name} {json.dumps(facts)}")
                for process in processes if not options.prepare else ():
                    if not process.lost and (times := process.do("time")):
                        found[process.name]["ms"] = times
                        say(f"{process.name} ms { ({n: round(t, 3) for n, t in times.items()}) }")
                    if options.profile and backend == "lamina" and (rows := process.do("profile lamina")):
                        profiles += shares(process.name, rows)
                        print("\n".join(shares(process.name, rows)), flush=True)
        finally:
            for process in processes:
                process.stop()
    for process in processes:
        if process.lost:
            profiles += ["", f"{process.name} failed: {process.lost}"]
    return table({n: f for n, f in found.items() if "ms" in f}) + profiles


def arguments(description: str | None, choice: Sequence[str]) -> argparse.ArgumentParser:
    """The command line of a script whose models, of `choice`, live in processes of their own."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--small", action="store_true", help="tiny models, to try this script")
    parser.add_argument("--profile", action="store_true", help="which of our kernels take the time")
    parser.add_argument("--systems", default="lamina,inductor", help="what compiles, in this order; lamina is needed")
    parser.add_argument("--seconds", type=float, default=1.5, help="of timing, a model")
    parser.add_argument("--deadline", type=float, default=3600, help="seconds after which what is there is reported")
    parser.add_argument("--caches", type=Path, help="a folder for the compilers' caches, which stays")
    parser.add_argument("--prepare", action="store_true", help="compile and compare only")
    parser.add_argument("--output", type=Path, help="a file for the report")
    parser.add_argument("--serve", default="", choices=("", *choice), help=argparse.SUPPRESS)
    parser.add_argument("models", nargs="*", help=f"of {', '.join(choice)}")
    parser.set_defaults(choice=choice)
    return parser


def main(description: str | None, choice: Sequence[str], make: Make, script: str, table: Table) -> None:
    """Run the table, or one model's process."""
    options = arguments(description, choice).parse_args()
    if options.serve:
        return serve(make, options.serve, options)
    options.end = time.monotonic() + options.deadline
    lines = run(options, script, table)
    print("\n".join(lines))
    if options.output:
        options.output.write_text("\n".join(lines) + "\n")
