"""`lamina ops`: the ops that there are, from the registry."""

from __future__ import annotations

import click


@click.command("ops")
@click.argument("names", nargs=-1)
@click.option(
    "--missing",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    default=None,
    help="List what the exported model FILE (.pt2) needs and we lack.",
)
def ops_command(names: tuple[str, ...], missing: str | None) -> None:
    """List all ops with their formulas, or show NAMES with operands, attributes and results."""
    if missing:
        from ..frontend.export import missing_ops

        lacking = missing_ops(missing)
        for name, places in lacking.items():
            click.echo(f"{name}  {len(places)}x  {', '.join(map(str, places[:3]))}{' …' if len(places) > 3 else ''}")
        click.echo(f"{len(lacking)} ops are missing" if lacking else "nothing is missing")
        return
    from ..dialects.op import all_ops, registry

    if names:
        for name in names:
            try:
                click.echo(describe(registry(name.removeprefix("lamina."))))
            except KeyError as error:
                raise click.ClickException(error.args[0]) from None
        return
    ops = all_ops()
    for category in dict.fromkeys(op.category for op in ops.values()):
        click.secho(category, bold=True)
        for op in ops.values():
            if op.category == category:
                click.echo(f"  {op.name:24} {(op.__doc__ or '').strip().splitlines()[0]}")
    click.echo(f"{len(ops)} ops")


def describe(op) -> str:
    """One op in full."""
    lines = [
        f"lamina.{op.name}  ({op.category}, {op.numerics})",
        *(f"  {line.strip()}" for line in op.__doc__.strip().splitlines()),
    ]
    for f in op.fields:
        kind = f.kind.__name__.lower()
        type_name = f" {getattr(f.type, '__name__', f.type)}" if f.type else ""
        default = "" if f.default is ... else f" = {f.default!r}"
        lines.append(f"    {f.name}: {kind}{type_name}{default}")
    return "\n".join(lines)
