"""Targets: machines we compile for. One file each; adding one adds its line here."""

from __future__ import annotations

import difflib

from .features import host_arch, host_flags
from .target import Features, Target, TargetError
from .x86_64 import TARGETS as _X86_64

__all__ = ["Features", "Target", "TargetError", "all_targets", "get_target", "native"]

# in ascending order within an architecture: `native` takes the last that the machine can run
_TARGETS: tuple[Target, ...] = (*_X86_64,)


def all_targets() -> dict[str, Target]:
    """Every target by name."""
    return {t.name: t for t in _TARGETS}


def native() -> Target:
    """The best target that this machine can run; TargetError if there is none."""
    runs = [t for t in _TARGETS if t.arch == host_arch() and t.flags <= host_flags()]
    if not runs:
        raise TargetError(
            f"no target for this {host_arch()} machine; targets are {', '.join(all_targets())}"
            " (x86-64 needs AVX2 and FMA: level v3)"
        )
    return runs[-1]


def get_target(name: str) -> Target:
    """The target called `name` or by an alias (`native`: the best for this machine); an unknown one is a TargetError."""
    if name == "native":
        return native()
    for t in _TARGETS:
        if name == t.name or name in t.aliases:
            return t
    known = ["native", *all_targets()]
    near = difflib.get_close_matches(name, known, 1)
    raise TargetError(
        f"no target '{name}'" + (f"; did you mean '{near[0]}'?" if near else "") + f" Targets: {', '.join(known)}"
    )
