"""This machine: its architecture and what its CPU can do, in the names of Linux's /proc/cpuinfo (`avx2`, `asimd`, `sve`).

    x86-64           /proc/cpuinfo
    AArch64, RISC-V  the bits of the auxiliary vector, which emulators set too; on macOS its own `sysctl`

`LAMINA_CPU_FLAGS` adds flags, for systems that do not list all (RISC-V's `v` under old kernels and emulators).
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import sys
from collections.abc import Iterable

# bit of AT_HWCAP or 32 + bit of AT_HWCAP2 → flag (Linux, arch/arm64/include/uapi/asm/hwcap.h): those that targets ask for
_AARCH64 = {0: "fp", 1: "asimd", 8: "atomics", 9: "fphp", 10: "asimdhp", 20: "asimddp", 22: "sve", 23: "asimdfhm"}
_AARCH64 |= {32 + 1: "sve2", 32 + 9: "svei8mm", 32 + 12: "svebf16", 32 + 13: "i8mm", 32 + 14: "bf16"}
_RISCV64 = {ord(letter) - ord("a"): letter for letter in "imafdcv"}
_BITS = {"aarch64": _AARCH64, "riscv64": _RISCV64}
_AT_HWCAP, _AT_HWCAP2 = 16, 26
_APPLE = {"FEAT_FP16": "fphp asimdhp", "FEAT_DotProd": "asimddp", "FEAT_LSE": "atomics", "FEAT_FHM": "asimdfhm"}
_APPLE |= {"FEAT_BF16": "bf16", "FEAT_I8MM": "i8mm"}


@functools.cache
def host_arch() -> str:
    """`x86_64`, `aarch64`, `riscv64`, or Python's own name for another."""
    machine = platform.machine().lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(machine, machine)


@functools.cache
def host_flags() -> frozenset[str]:
    """The CPU's flags; none where the system does not tell."""
    given = os.environ.get("LAMINA_CPU_FLAGS", "").lower().replace(",", " ").split()
    try:
        found = _apple() if sys.platform == "darwin" else _auxiliary() if host_arch() in _BITS else _cpuinfo()
    except (OSError, AttributeError):
        found = set()
    return frozenset(found) | frozenset(given)


def missing(arch: str, flags: Iterable[str]) -> list[str] | None:
    """The flags that this machine lacks to run code for `arch`, or None if it is another architecture."""
    return sorted(set(flags) - host_flags()) if arch == host_arch() else None


def _cpuinfo() -> set[str]:
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
        for line in file:
            key, _, value = line.lower().partition(":")
            if key.strip() == "flags":
                return set(value.split())
    return set()


def _auxiliary() -> set[str]:
    getauxval = ctypes.CDLL(None).getauxval
    getauxval.restype, getauxval.argtypes = ctypes.c_ulong, [ctypes.c_ulong]
    bits = getauxval(_AT_HWCAP) & 0xFFFFFFFF | getauxval(_AT_HWCAP2) << 32
    return {flag for bit, flag in _BITS[host_arch()].items() if bits >> bit & 1}


def _apple() -> set[str]:
    library, value, size = ctypes.CDLL(None), ctypes.c_int(0), ctypes.c_size_t(4)
    found = {"fp", "asimd"} if host_arch() == "aarch64" else set()
    for name, flags in _APPLE.items():
        code = library.sysctlbyname(
            f"hw.optional.arm.{name}".encode(), ctypes.byref(value), ctypes.byref(size), None, ctypes.c_size_t(0)
        )
        found |= set(flags.split()) if code == 0 and value.value else set()
    return found
