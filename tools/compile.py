"""`lamina compile`: a model to an artifact, or any file of IR from its level to another."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..compiler import levels
from ..compiler.options import NUMERICS
from .aside import aside
from .files import bytes_text, read_text, writing
from .observing import observed, observer_of, report

if TYPE_CHECKING:
    from ..dialects.record import Graph


@click.command("compile")
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option("--target", "-t", "targets", multiple=True, metavar="T[,T]", help="Machines to compile for [native].")
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False), default=None, help="The artifact, or the text of --to."
)
@click.option("--from", "start", metavar="LEVEL", default=None, help="Level of the IR in FILE [guessed].")
@click.option(
    "--to", "--emit", "stop", metavar="LEVEL", default=None, help=f"Stop at one of {', '.join(levels.LEVELS)}."
)
@click.option("--kernel", metavar="NAME", default=None, help="Only the kernels whose name contains NAME.")
@click.option("--plain", is_flag=True, help="Straight loops only, no tiling.")
@click.option(
    "--numerics",
    type=click.Choice(NUMERICS),
    default="eager",
    help="eager: bf16 and f16 are rounded where torch does; fast: only where they are stored; tf32: f32 products on NVIDIA's tensor cores are rounded to TF32.",
)
@observed
def compile_command(file, targets, output, start, stop, kernel, plain, numerics, **observing) -> None:
    """Compile FILE: a model from torch.export (.pt2), a graph record (.json), or IR (.mlir, .ll).

    \b
    lamina compile model.pt2 -t x86-64-v3,x86-64-v4 -o model.lamina
    lamina compile model.pt2 --to kernels
    lamina compile kernel.mlir --to asm --kernel gelu
    """
    for level in filter(None, (start, stop)):
        try:
            levels.check_level(level)
        except levels.LevelError as error:
            raise click.UsageError(str(error)) from None
    names = list(dict.fromkeys(t for given in targets or ("native",) for t in given.split(",")))
    suffix = Path(file).suffix
    is_model = suffix in (".pt2", ".json") and start is None
    if stop is None and is_model:
        write_artifact(file, names, output or str(Path(file).with_suffix(".lamina")), plain, numerics, observing)
        return
    if stop is None:
        kind = suffix if suffix in (".pt2", ".json", ".mlir", ".ll") else "file of IR"
        raise click.UsageError(f"say --to LEVEL for a {kind}; an artifact is made from a .pt2 or .json")
    if len(names) > 1:
        raise click.UsageError(f"--to {stop} takes one --target, not {', '.join(names)}")
    write_level(file, names[0], output, start, stop, kernel, plain, numerics, is_model, observing)


def write_artifact(
    file: str, targets: list[str], output: str, plain: bool, numerics: str, observing: dict[str, Any]
) -> None:
    """Compile a model for all targets and write the artifact."""
    from ..compiler import artifact
    from ..compiler.api import compile_graph
    from ..compiler.options import Options
    from ..compiler.pool import warm
    from ..passes.pass_times import PassTimes
    from ..targets import get_target
    from .progress import progress_bar

    options = Options(
        numerics=numerics,
        plain=plain,
        verify="each" if observing["verify_each"] else "boundaries",
        dump_dir=observing["dump_ir"],
        time_passes=observing["time_passes"] or bool(observing["print_after"]),
        print_after=observing["print_after"],
    )
    for target in targets:  # what is wrong in the command is said before minutes of compilation
        get_target(target)
    if not Path(output).parent.is_dir():
        raise click.ClickException(f"cannot write {output}: there is no folder {Path(output).parent}")
    warm()
    graph, weights, state = read_model(file)
    times = PassTimes()
    programs = {}
    with progress_bar() as progress:
        for target in targets:
            programs[target] = compile_graph(graph, target, options, progress)
            times.update(programs[target].manifest["times"])
    artifact.save(output, programs, weights, state)
    for target, program in programs.items():
        for name, facts in program.manifest["kernels"].items():
            if facts["reason"]:
                click.echo(f"lamina: warning: kernel '{name}' is plain for {target}: {facts['reason']}", err=True)
    report(times, **observing)
    click.echo(f"{output}: {bytes_text(Path(output).stat().st_size)} for {', '.join(targets)}", err=True)


@aside
def write_level(file, target, output, start, stop, kernel, plain, numerics, is_model, observing) -> None:
    """Take a file to a level and write what is there."""
    from ..compiler.lowering import Lowering, guess_level
    from ..targets import get_target

    observer = observer_of(file, **observing)
    lowering = Lowering(get_target(target), observer, plain, kernel, numerics)
    if is_model:
        result = lowering.record(read_model(file)[0], stop)
    else:
        text = read_text(file)
        result = lowering.text(text, file, start or guess_level(file, text), stop)
    if isinstance(result, bytes):
        if not output and sys.stdout.isatty():
            raise click.UsageError("an object is binary; say where it goes: -o FILE")
        with writing(output or "standard output"):
            Path(output).write_bytes(result) if output else sys.stdout.buffer.write(result)
    elif output:
        with writing(output):
            Path(output).write_text(result)
    else:
        click.echo(result, nl=not result.endswith("\n"))
    report(observer.times, **observing)


def read_model(file: str) -> tuple[Graph, dict[str, Any], dict[str, Any]]:
    """The graph record of a model file, its weights and the initial values of its state, by name.

    A record (.json) has no data: its weights are in the file of the same name with suffix .npz, if it has any.
    """
    from ..dialects.record import Graph, RecordError

    if file.endswith(".json"):
        try:
            graph = Graph.from_json(read_text(file))
        except RecordError as error:
            raise click.ClickException(f"{file}: {error}") from None
        return graph, _read_weights(graph, Path(file).with_suffix(".npz")), {}
    from ..frontend.export import from_file

    exported = from_file(file)
    return exported.graph, exported.arrays(exported.weights), exported.arrays(exported.state)


def _read_weights(graph: Graph, path: Path) -> dict[str, Any]:
    import numpy as np

    names = [i.name for i in graph.inputs if i.kind == "weight"]
    if not names:
        return {}
    if not path.exists():
        raise click.ClickException(f"the graph has weights ({', '.join(names[:3])} …); give them in {path}")
    with np.load(path) as arrays:
        missing = [name for name in names if name not in arrays]
        if missing:
            raise click.ClickException(f"{path} has no array for {', '.join(missing)}; it has {', '.join(arrays)}")
        return {name: arrays[name] for name in names}
