"""What the running machine can do: its architecture and CPU flags, read without LLVM."""

from __future__ import annotations

import functools
import platform


@functools.cache
def host_arch() -> str:
    """`x86_64`, `aarch64` or `riscv64`; other machines give Python's own name."""
    machine = platform.machine().lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(machine, machine)


@functools.cache
def host_flags() -> frozenset[str]:
    """The CPU flags that the kernel reports, in its own (lower-case) spelling; empty where it reports none."""
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as f:
            for line in f:
                key, _, value = line.partition(":")
                if key.strip().lower() in ("flags", "features", "isa"):
                    return frozenset(
                        value.lower().replace("_", " ").split() if key.strip() == "isa" else value.lower().split()
                    )
    except OSError:
        pass
    return frozenset()
