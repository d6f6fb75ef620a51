"""`lamina targets`: the machines that can be compiled for, and what stands in the way of compiling or running."""

from __future__ import annotations

from importlib.util import find_spec

import click


@click.command("targets")
def targets_command() -> None:
    """List the targets: whether their code can be made and run here, and why not."""
    from ..runtime.machine import missing
    from ..targets import all_targets

    rows = [("target", "compiles", "runs", "machine")]
    for target in all_targets().values():
        lacks = missing(target.arch, target.flags)
        runs = "yes" if lacks == [] else f"no: needs {' '.join(lacks)}" if lacks else f"no: {target.arch} only"
        aliases = f" (also {', '.join(target.aliases)})" if target.aliases else ""
        rows.append((target.name, _compiles(), runs, target.summary() + aliases))
    widths = [max(map(len, column)) for column in zip(*rows)]
    for row in rows:
        click.echo("  ".join(text.ljust(width) for text, width in zip(row, widths)).rstrip())


def _compiles() -> str:
    absent = [name for name in ("mlir", "llvmlite") if find_spec(name) is None]
    return f"no: pip install 'lamina[compiler]' ({', '.join(absent)} missing)" if absent else "yes"
