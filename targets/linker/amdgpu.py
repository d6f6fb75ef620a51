"""AMDGPU relocations, from LLVM's "User Guide for AMDGPU Backend", section "Relocation Records".

A code object is a shared object that the driver loads: nothing is imported, kernels and their descriptors (`k`, `k.kd`)
are found by name, and a note says what arguments and registers they need. Addresses are made by `s_getpc` and two
32-bit halves of a distance.
"""

from __future__ import annotations

import struct

from .elf import LinkError
from .machine import Machine, fits

R_ABS32_LO, R_ABS32_HI, R_ABS64, R_REL32, R_REL64, R_ABS32 = 1, 2, 3, 4, 5, 6
R_GOTPCREL, R_GOTPCREL32_LO, R_GOTPCREL32_HI, R_REL32_LO, R_REL32_HI, R_RELATIVE64 = 7, 8, 9, 10, 11, 13
_LOW = (R_GOTPCREL32_LO, R_REL32_LO)
_HIGH = (R_GOTPCREL32_HI, R_REL32_HI)


def _stub(address: int, slot: int) -> bytes:
    raise LinkError("device code calls no function of another image")


def _apply(data: bytearray, offset: int, type: int, value: int, place: int) -> None:
    distance = value - place
    if type == R_ABS64:
        struct.pack_into("<Q", data, offset, value & 0xFFFFFFFFFFFFFFFF)
    elif type == R_REL64:
        struct.pack_into("<q", data, offset, distance)
    elif type in (R_REL32, R_GOTPCREL):
        struct.pack_into("<i", data, offset, fits(distance, 32, "PC-relative address"))
    elif type in _LOW:
        struct.pack_into("<I", data, offset, distance & 0xFFFFFFFF)
    elif type in _HIGH:
        struct.pack_into("<I", data, offset, distance >> 32 & 0xFFFFFFFF)
    elif type in (R_ABS32_LO, R_ABS32_HI, R_ABS32):
        raise LinkError("an absolute address in code; emit the object with 'reloc=pic'")
    else:
        raise LinkError(f"AMDGPU relocation type {type}")


AMDGPU = Machine(
    name="AMDGPU",
    number=224,
    page=0x1000,
    absolute=R_ABS64,
    relative=R_RELATIVE64,
    symbol=R_ABS64,
    got=frozenset((R_GOTPCREL, R_GOTPCREL32_LO, R_GOTPCREL32_HI)),
    calls=frozenset(),
    stub_size=0,
    stub=_stub,
    apply=_apply,
    notes=True,
)
