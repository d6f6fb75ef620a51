"""`lamina bench`: how long a call of an artifact takes."""

from __future__ import annotations

import statistics
import time

import click

from .arrays import entry_option, fill_inputs, read_inputs, size_option, target_option


@click.command("bench")
@click.argument("artifact", type=click.Path(exists=True, dir_okay=False))
@click.option("--input", "-i", "files", multiple=True, metavar="[NAME=]X.npy", help="An input; others are random.")
@size_option
@click.option("--seconds", default=2.0, show_default=True, help="How long to measure.")
@click.option("--threads", type=int, default=None, help="Threads of a call [all].")
@entry_option
@target_option
def bench_command(artifact, files, sizes, seconds, threads, entry, target) -> None:
    """Measure calls of ARTIFACT and print the shortest, the median and the 90th percentile."""
    from ..runtime.api import load

    model = load(artifact, entry=entry, target=target, threads=threads)
    inputs = list(fill_inputs(model, read_inputs(model, files), sizes, 0).values())
    times = measure(lambda: model(*inputs), seconds)
    shown = [f"{name} {value * 1e6:.1f} us" for name, value in summary(times).items()]
    click.echo(f"{entry} on {model.target}: {', '.join(shown)}, {len(times)} calls")


def measure(call, seconds: float) -> list[float]:
    """Wall times of calls during about `seconds`, after a warm-up of a tenth of it and at least three calls."""
    times: list[float] = []
    end = time.perf_counter() + seconds * 0.1
    for _ in range(3):
        call()
    while time.perf_counter() < end:
        call()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or not times:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return times


def summary(times: list[float]) -> dict[str, float]:
    """The figures that are shown."""
    ordered = sorted(times)
    return {"min": ordered[0], "median": statistics.median(ordered), "p90": ordered[int(0.9 * (len(ordered) - 1))]}
