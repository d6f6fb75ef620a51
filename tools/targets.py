"""`lamina targets`: the machines that can be compiled for."""

from __future__ import annotations

import click


@click.command("targets")
def targets_command() -> None:
    """List the machines that can be compiled for; `*` marks those that this machine can run."""
    from ..targets import all_targets
    from ..targets.features import host_arch, host_flags

    for target in all_targets().values():
        runs = target.arch == host_arch() and target.flags <= host_flags()
        f = target.features
        aliases = f"  (also {', '.join(target.aliases)})" if target.aliases else ""
        facts = f"{f.vector_bits}-bit vectors, {f.registers} registers" + (", FMA" if f.has_fma else "")
        click.echo(f"{'*' if runs else ' '} {target.name:12} {target.arch:8} {facts}{aliases}")
