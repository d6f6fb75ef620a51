"""`lamina inspect`: what is in an artifact."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from .files import bytes_text

if TYPE_CHECKING:
    from ..runtime.artifact import Artifact


@click.command("inspect")
@click.argument("artifact", type=click.Path(exists=True, dir_okay=False))
@click.option("--json", "as_json", is_flag=True, help="Print the manifest as JSON.")
@click.option("--launches", is_flag=True, help="List the kernel launches of each program.")
def inspect_command(artifact: str, as_json: bool, launches: bool) -> None:
    """Show the entry points, signatures, targets and weights of ARTIFACT."""
    from ..runtime.artifact import read_artifact

    read = read_artifact(artifact)
    if as_json:
        click.echo(json.dumps(read.manifest, indent=2))
        return
    for line in describe(read, launches):
        click.echo(line)


def describe(artifact: Artifact, launches: bool) -> Iterator[str]:
    """The manifest for people, line by line."""
    manifest = artifact.manifest
    yield f"made by {manifest['producer']}, schema {manifest['schema']}, {bytes_text(os.path.getsize(artifact.path))}"
    for name, entry in manifest["entries"].items():
        programs = entry["programs"]
        plan = next(iter(programs.values()))["plan"]
        arguments = ", ".join(_tensor(i) for i in plan["inputs"] if i["name"] not in entry["state"])
        results = ", ".join(_tensor(o) for o in plan["outputs"] if o["mutates"] is None)
        yield f"{name}({arguments}) -> {results}"
        for s in plan["symbols"]:
            most = "" if s["max"] is None else f" <= {s['max']}"
            step = f", a multiple of {s['multiple_of']}" if s["multiple_of"] > 1 else ""
            yield f"  size {s['min']} <= {s['name']}{most}{step}"
        for state in entry["state"]:
            yield f"  state {state}"
        for target, program in programs.items():
            count = len(program["plan"]["launches"])
            needs = f", needs {' '.join(program['flags'])}" if program["flags"] else ""
            code = bytes_text(artifact.members[program["code"]].size)
            yield f"  {target}: {count} launches, {code} of code{needs}"
            if launches:
                yield from map(_launch, itertools.count(), program["plan"]["launches"])
    if hosts := manifest.get("hosts"):
        yield f"GPUs are launched natively from {', '.join(hosts)}, elsewhere by Python"
    weights = manifest["weights"]
    stored = sum(artifact.weight_bytes(name).size for name in {w["file"]: name for name, w in weights.items()}.values())
    yield f"{len(weights)} weights" + (f", {bytes_text(stored)}:" if weights else "")
    for name, w in weights.items():
        yield f"  {name}: {w['dtype']}{w['shape']}"


def _launch(number: int, launch: dict[str, Any]) -> str:
    file, line, op = launch["location"]
    return f"    {number:4} {launch['kernel']:50} {f'{file}:{line} ' if file else ''}{op}".rstrip()


def _tensor(spec: dict[str, Any]) -> str:
    return f"{spec['name']}: {spec['dtype']}[{', '.join(map(str, spec['shape']))}]"
