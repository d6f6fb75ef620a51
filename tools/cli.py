"""The `lamina` command: one file per subcommand, imported only when it is called.

    lamina compile model.pt2 --target native -o model.lamina
    lamina run model.lamina --random
    lamina opt kernel.mlir --passes "lamina-canonicalize,cse"

Exit status: 0 success, 1 what was asked for failed (one line says why), 2 wrong usage.
"""

from __future__ import annotations

import os
import sys
import warnings
from importlib import import_module

import click

from .. import __version__

# command → what it does; the command `x` is the function `x_command` in tools/x.py
COMMANDS = {
    "compile": "Compile a model or IR to an artifact, or stop at any level.",
    "run": "Run an artifact.",
    "opt": "Run passes on a file of MLIR.",
    "inspect": "Show what is in an artifact.",
    "header": "Write lamina.h and a shared object for C programs.",
    "ops": "List the ops, or those that a model needs and Lamina lacks.",
    "targets": "List the machines that can be compiled for.",
    "bench": "Measure an artifact.",
    "cache": "Show or clear the compile caches.",
}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are needed, so that `lamina run` never sees the compiler."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        return getattr(import_module(f".{cmd_name}", __package__), f"{cmd_name}_command")

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(self, ctx: click.Context, args: list[str]):
        import difflib

        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], COMMANDS, 1)
            hint = f"did you mean '{near[0]}'?" if near else f"commands are {', '.join(COMMANDS)}"
            raise click.UsageError(f"there is no command '{args[0]}'; {hint}", ctx)
        return super().resolve_command(ctx, args)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, "-V", "--version", prog_name="lamina")
def lamina() -> None:
    """Compile PyTorch graphs through MLIR to machine code."""


def main() -> None:
    """Run the command line; an expected failure is one line on standard error and exit status 1."""
    warnings.simplefilter("ignore", FutureWarning)  # torch warns about torch
    try:
        lamina.main(standalone_mode=False)
    except click.UsageError as error:
        error.show()
        sys.exit(error.exit_code)
    except click.Abort:
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output, such as `head`, has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except Exception as error:
        if os.environ.get("LAMINA_TRACEBACK"):
            raise
        missing = f"; {_install_hint(error)}" if isinstance(error, ImportError) else ""
        click.echo(f"lamina: error: {_message(error)}{missing}", err=True)
        sys.exit(1)


def _message(error: Exception) -> str:
    if isinstance(error, click.ClickException):
        return error.format_message()
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return str(error) or type(error).__name__


def _install_hint(error: ImportError) -> str:
    """Which part of Lamina holds the missing package."""
    package = (error.name or "").partition(".")[0]
    parts = {"torch": "torch", "mlir": "compiler", "llvmlite": "compiler", "rich": "compiler", "ml_dtypes": "bf16"}
    return f"pip install 'lamina[{parts[package]}]'" if package in parts else "LAMINA_TRACEBACK=1 shows where"


if __name__ == "__main__":
    main()
