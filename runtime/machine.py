"""This machine, as artifacts see it: its architecture and what its CPU can do."""

from __future__ import annotations

import functools
import platform
from collections.abc import Iterable


@functools.cache
def host_arch() -> str:
    """`x86_64`, `aarch64`, `riscv64`, or Python's own name for another."""
    machine = platform.machine().lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(machine, machine)


@functools.cache
def host_flags() -> frozenset[str]:
    """CPU flags in Linux's spelling (`avx2`, `asimd`), empty where the system does not list them."""
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            for line in file:
                key, _, value = line.lower().partition(":")
                if key.strip() in ("flags", "features", "isa"):
                    return frozenset((value.replace("_", " ") if key.strip() == "isa" else value).split())
    except OSError:
        pass
    return frozenset()


def missing(arch: str, flags: Iterable[str]) -> list[str] | None:
    """The flags that this machine lacks to run code for `arch`, or None if it is another architecture."""
    return sorted(set(flags) - host_flags()) if arch == host_arch() else None
