"""The options that show passes at work, shared by the commands that run them."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .aside import entered

if TYPE_CHECKING:
    from ..passes.pass_manager import Observer
    from ..passes.pass_times import PassTimes


def _check_names(context: click.Context, parameter: click.Parameter, names: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse a misspelt pass of ours; the names of MLIR's own are not known without MLIR."""
    from ..passes.pipeline import our_names

    for name in names:
        if name.startswith("lamina-") and name not in (known := our_names()):
            near = difflib.get_close_matches(name, known, 3)
            hint = f"did you mean {', '.join(near)}?" if near else "lamina opt --list shows them"
            raise click.BadParameter(f"there is no pass '{name}'; {hint}", context, parameter)
    return names


def _check_folder(context: click.Context, parameter: click.Parameter, folder: str | None) -> str | None:
    """Make the folder now: minutes of compilation later is too late to say that it cannot be."""
    try:
        if folder:
            Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise click.BadParameter(f"cannot write below {folder}: {error.strerror}", context, parameter) from None
    return folder


_OPTIONS = (
    click.option(
        "--dump-ir", metavar="DIR", default=None, callback=_check_folder, help="Write the IR after each pass below DIR."
    ),
    click.option("--time-passes", is_flag=True, help="Print what each pass took, to standard error."),
    click.option(
        "--print-after",
        metavar="PASS",
        multiple=True,
        callback=_check_names,
        help="Print the IR after PASS, to standard error.",
    ),
    click.option("--verify-each", is_flag=True, help="Verify after every pass, not only at levels."),
)


def observed(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--dump-ir`, `--time-passes`, `--print-after` and `--verify-each` to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def observer_of(
    label: str, dump_ir: str | None, time_passes: bool, print_after: tuple[str, ...], verify_each: bool
) -> Observer:
    """The observer for passes that run in the process of a command."""
    from ..compiler.cache import cache_root
    from ..passes.dump import Dump
    from ..passes.pass_manager import Observer
    from ..passes.pass_times import PassTimes

    return Observer(
        verify="each" if verify_each else "boundaries",
        times=PassTimes() if time_passes or print_after else None,  # it tells what ran, too
        dump=Dump(dump_ir) if dump_ir else None,
        print_after=frozenset(print_after),
        on_print=lambda step, text: click.echo(f"// after {step}\n{text}", err=True),
        on_step=entered,
        reproducers=str(cache_root() / "reproducers"),
        label=Path(label).stem or "module",
    )


def report(times: PassTimes | None, time_passes: bool, print_after: tuple[str, ...], **_others: Any) -> None:
    """Print what passes took, if that was asked for, and name those that should have been printed after but did not run."""
    if not times:
        return
    if time_passes:
        click.echo(times.table(), err=True)
    words = {name: name.removeprefix("lamina-") for name in times.seconds}
    for name in print_after:
        if name not in words:
            near = difflib.get_close_matches(name.removeprefix("lamina-"), list(dict.fromkeys(words.values())), 3)
            meant = ", ".join(ran for word in near for ran in words if words[ran] == word)
            hint = f"did you mean {meant}?" if near else "--time-passes lists those that did"
            click.echo(f"lamina: warning: no pass '{name}' ran, and nothing is printed after it; {hint}", err=True)
