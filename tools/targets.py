"""`lamina targets`: the machines that can be compiled for, and what stands in the way of compiling or running."""

from __future__ import annotations

import itertools
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ..targets import Target


@click.command("targets")
def targets_command() -> None:
    """List the targets: whether their code can be made and run here, and why not."""
    from ..targets import all_targets

    rows = [("target", "compiles", "runs", "machine")]
    for target in all_targets().values():
        aliases = f" (also {', '.join(target.aliases)})" if target.aliases else ""
        rows.append((target.name, _compiles(), _runs(target), target.summary() + aliases))
    widths = [max(map(len, column)) for column in zip(*rows)]
    for row in rows:
        click.echo("  ".join(text.ljust(width) for text, width in zip(row, widths)).rstrip())


def _runs(target: Target) -> str:
    if target.device != "cpu":
        return _runs_on_gpu(target)
    from ..runtime.machine import missing

    lacks = missing(target.arch, target.flags)
    if lacks is None:
        return f"no: {target.arch} only"
    if sys.platform == "win32":
        return "no: not on Windows yet"
    return f"no: needs {' '.join(lacks)}" if lacks else "yes"


def _runs_on_gpu(target: Target) -> str:
    """The GPUs here that can, or why none can."""
    from ..runtime.errors import LaminaRuntimeError
    from ..runtime.gpu.model import parse_device

    able, reasons = list[str](), list[str]()
    for index in itertools.count():
        try:
            device = parse_device(f"{target.device}:{index}")
        except LaminaRuntimeError as error:
            if not index:
                reasons.append(str(error).partition(":")[0].partition(";")[0])
            break
        try:
            device.require(target.name)
            able.append(str(device))
        except LaminaRuntimeError as error:
            reasons.append(str(error))
    return f"yes: {', '.join(able)}" if able else f"no: {'; '.join(reasons)}"


def _compiles() -> str:
    absent = [name for name in ("mlir", "llvmlite") if find_spec(name) is None]
    return f"no: pip install 'lamina[compiler]' ({', '.join(absent)} missing)" if absent else "yes"
