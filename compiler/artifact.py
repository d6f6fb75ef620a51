"""Programs as an artifact: puts what the compiler knows of targets beside the code (docs/artifact.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..runtime.gpu.table import ENTRY
from ..targets import Target, all_targets, get_target
from .api import Program, compile_llvm
from .artifact_file import Code, EntryCode, HostCode, write_artifact
from .native.gpu_entry_ir import gpu_entry_ir

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
    named = [get_target(t) for programs in entries.values() for t in programs]
    write_artifact(path, codes, weights, f"lamina {__version__}", _launchers(named))
    return Path(path)


def _launchers(named: Sequence[Target]) -> dict[str, HostCode]:
    """The native entry for GPUs, for each host: of the architectures of the CPUs that are named.

    It is the same for all programs, and each architecture's first target runs it as well as the others.
    """
    if all(t.device == "cpu" for t in named):
        return {}
    archs = {t.arch for t in named if t.device == "cpu"} or _HOSTS
    hosts = {t.arch: t for t in reversed(all_targets().values()) if t.arch in archs}
    text, exports = gpu_entry_ir(), [ENTRY]
    return {
        t.name: HostCode(compile_llvm(text, exports, t.name, name="launcher"), t.arch, tuple(sorted(t.flags)))
        for t in hosts.values()
    }


# Architectures of the hosts of GPUs where no CPU is among the targets.
_HOSTS = {"x86_64", "aarch64"}


def _code(program: Program) -> Code:
    target = get_target(program.manifest["target"])
    return Code(program.manifest, program.image, target.arch, tuple(sorted(target.flags)))
