"""Targets: machines we compile for. One file each; adding one adds its line here.

A target of another package is an entry point in the group `lamina.targets` that names a `Target` or a tuple of them:

    [project.entry-points."lamina.targets"]
    wasm32 = "my_package.wasm32:TARGET"
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Sequence
from importlib import metadata

from ..runtime.machine import host_arch, missing
from .aarch64 import TARGETS as _AARCH64
from .amdgpu import TARGETS as _AMDGPU
from .nvptx import TARGETS as _NVPTX
from .riscv64 import TARGETS as _RISCV64
from .target import Features, Target, TargetError
from .x86_64 import TARGETS as _X86_64

__all__ = ["Features", "Target", "TargetError", "all_targets", "get_target", "native"]

# in ascending order within an architecture: `native` takes the last that the machine can run
_TARGETS: tuple[Target, ...] = (*_X86_64, *_AARCH64, *_RISCV64, *_NVPTX, *_AMDGPU)


def all_targets() -> dict[str, Target]:
    """Every target by name, those of other packages last."""
    return {t.name: t for t in (*_TARGETS, *_external())}


def native() -> Target:
    """The best target that this machine can run; TargetError if there is none."""
    runs = [t for t in _TARGETS if missing(t.arch, t.flags) == []]
    if not runs:
        here = [
            f"{t.name} lacks {', '.join(missing(t.arch, t.flags) or ())}" for t in _TARGETS if t.arch == host_arch()
        ]
        reason = "; ".join(here) or f"targets are {', '.join(all_targets())}"
        raise TargetError(f"no target for this {host_arch()} machine: {reason}")
    return runs[-1]


def get_target(name: str) -> Target:
    """The target called `name` or by an alias (`native`: the best for this machine); an unknown one is a TargetError."""
    if name == "native":
        return native()
    found = _named(name, _TARGETS) or _named(name, _external())  # entry points are looked up only if they must be
    if found:
        return found
    known = ["native", *all_targets()]
    near = difflib.get_close_matches(name, known, 1)
    raise TargetError(
        f"no target '{name}'" + (f"; did you mean '{near[0]}'?" if near else ";") + f" targets are {', '.join(known)}"
    )


def _named(name: str, targets: Sequence[Target]) -> Target | None:
    return next((t for t in targets if name == t.name or name in t.aliases), None)


@functools.cache
def _external() -> tuple[Target, ...]:
    """The targets of other packages, which may not take a name of ours."""
    ours = {name for t in _TARGETS for name in (t.name, *t.aliases)}
    found: dict[str, Target] = {}
    for entry in metadata.entry_points(group="lamina.targets"):
        try:
            loaded = entry.load()
        except Exception as error:
            raise TargetError(f"the target '{entry.name}' of {entry.value} cannot be imported: {error}") from error
        for target in (loaded,) if isinstance(loaded, Target) else tuple(loaded):
            if not isinstance(target, Target):
                raise TargetError(f"the entry point '{entry.name}' of group lamina.targets gives {target!r}, no Target")
            if target.name in ours or target.name in found:
                raise TargetError(f"the entry point '{entry.name}' defines target '{target.name}', which exists")
            found[target.name] = target
    return tuple(found.values())
