"""`lamina header`: an artifact's entry point for C programs."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("header")
@click.argument("artifact", type=click.Path(exists=True, dir_okay=False))
@click.option("-o", "--output", type=click.Path(file_okay=False), default=".", help="The folder to write to.")
@click.option("--entry", default="main", help="The entry point [main].")
@click.option("--target", "-t", default=None, help="One of the artifact's targets [the best for this machine].")
def header_command(artifact: str, output: str, entry: str, target: str | None) -> None:
    """Write lamina.h and liblamina_ENTRY.so, with which a C program runs ARTIFACT (which stays, for its weights).

    \b
    lamina header model.lamina -o c/
    cc main.c -Ic c/liblamina_main.so -o main
    """
    from ..runtime.artifact import read_artifact
    from .c_header import c_header

    read = read_artifact(artifact)
    chosen = target if target in read.targets(entry) else read.choose(entry, target)
    folder = Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    library = f"liblamina_{entry}.so"
    (folder / "lamina.h").write_text(c_header(read, entry, chosen, library))
    (folder / library).write_bytes(read.program(entry, chosen)[1])
    click.echo(f"{folder / 'lamina.h'}, {folder / library} for {chosen}", err=True)
