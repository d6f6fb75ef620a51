"""Programs as an artifact: puts what the compiler knows of targets beside the code (docs/artifact.md)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ..runtime.artifact import Code, EntryCode, write_artifact
from ..targets import get_target
from .api import Program

if TYPE_CHECKING:
    import numpy as np


def save(
    path: str | Path,
    programs: Mapping[str, Program],
    weights: Mapping[str, np.ndarray],
    state: Mapping[str, np.ndarray],
) -> Path:
    """Write an artifact with one entry, named `main`, and return its path.

    `programs` are one graph compiled for each target (aliases allowed: the target's own name is stored), `weights` its
    weights and `state` the initial values of inputs that the program updates, by name.
    """
    return save_entries(path, {"main": programs}, {"main": {name: name for name in state}}, {**weights, **state})


def save_entries(
    path: str | Path,
    entries: Mapping[str, Mapping[str, Program]],
    state: Mapping[str, Mapping[str, str]],
    weights: Mapping[str, np.ndarray],
) -> Path:
    """Write an artifact with several entries, which share weights by name.

    `state` gives for each entry the weights that its state inputs start from.
    """
    from .. import __version__

    codes = {
        name: EntryCode({get_target(t).name: _code(p) for t, p in programs.items()}, state.get(name, {}))
        for name, programs in entries.items()
    }
    write_artifact(path, codes, weights, f"lamina {__version__}")
    return Path(path)


def _code(program: Program) -> Code:
    target = get_target(program.manifest["target"])
    return Code(program.manifest, program.image, target.arch, tuple(sorted(target.flags)))
