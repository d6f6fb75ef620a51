"""`lamina cache`: the compile caches on disk."""

from __future__ import annotations

import click


@click.command("cache")
@click.option("--clear", is_flag=True, help="Remove every entry.")
def cache_command(clear: bool) -> None:
    """Show where the compile caches are and how large they are, or clear them."""
    from ..compiler import cache

    if clear:
        click.echo(f"{cache.clear()} entries removed")
        return
    info = cache.info()
    click.echo(
        f"{info.directory}: {info.entries} entries, {info.bytes / 1e6:.1f} MB of at most {info.limit / 1e6:.0f} MB"
    )
    click.echo("LAMINA_CACHE_DIR moves it, LAMINA_CACHE_SIZE_MB bounds it, `lamina cache --clear` empties it")
