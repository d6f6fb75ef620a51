"""`lamina opt`: passes on a file of MLIR."""

from __future__ import annotations

from pathlib import Path

import click

from .aside import aside
from .files import read_text, writing
from .observing import observed, observer_of, report


@click.command("opt")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True), required=False)
@click.option("--passes", "-p", default=None, metavar="PIPELINE", help="Passes of ours and of MLIR, comma-separated.")
@click.option("--run-reproducer", is_flag=True, help="Run the pipeline that is written in FILE.")
@click.option("--list", "listing", is_flag=True, help="List our passes and their options, and stop.")
@click.option("-o", "--output", type=click.Path(dir_okay=False), default=None, help="Write here, not to the terminal.")
@click.option("--generic", is_flag=True, help="Print every op in generic form.")
@click.option("--locations", is_flag=True, help="Print locations.")
@observed
def opt_command(file, passes, run_reproducer, listing, output, generic, locations, **observing) -> None:
    """Run passes on a FILE of MLIR (`-`: standard input) and print the result.

    \b
    lamina opt kernel.mlir --passes "lamina-cse,func.func(canonicalize{max-iterations=3})" --print-after lamina-cse
    """
    if listing:
        click.echo(list_passes())
        return
    if file is None:
        raise click.UsageError("say which FILE of MLIR to run passes on (-: standard input)")
    run_passes(file, passes, run_reproducer, output, generic, locations, observing)


@aside
def run_passes(file, passes, run_reproducer, output, generic, locations, observing) -> None:
    """Run passes on a file and print what comes out."""
    from ..compiler.lowering import guess_level, parse_module
    from ..dialects.mlir_context import context
    from ..passes.pass_manager import run
    from ..passes.reproducer import read_reproducer

    text = read_text(file)
    if run_reproducer:
        passes = read_reproducer(text)
    observer = observer_of(file, **observing)
    level = guess_level(file, text) if '"lamina.' in text else ""  # others' IR has rules of its own
    module = parse_module(text, file, context(), level)
    run(module, passes or "", observer)
    printed = module.operation.get_asm(enable_debug_info=locations, print_generic_op_form=generic)
    if output:
        with writing(output):
            Path(output).write_text(printed if printed.endswith("\n") else printed + "\n")
    else:
        click.echo(printed, nl=not printed.endswith("\n"))
    report(observer.times, **observing)


def list_passes() -> str:
    """Our passes, one per line: name, options with defaults, first sentence of the docstring."""
    from ..passes import pipeline, registry

    lines = []
    for name in pipeline.load_passes():
        options = " ".join(f"{k.replace('_', '-')}={v}" for k, v in registry.options(name).items())
        doc = (registry.passes()[name].__doc__ or "").strip().splitlines()[0]
        lines.append(f"{name}{f'{{{options}}}' if options else ''}\n    {doc}")
    return "\n".join(lines)
