"""x86-64 relocations, from the psABI's table "Relocation Types"."""

from __future__ import annotations

import struct

from .elf import LinkError
from .machine import Machine, fits

R_64, R_PC32, R_PLT32, R_GLOB_DAT, R_RELATIVE, R_GOTPCREL, R_PC64, R_GOTPCRELX, R_REX_GOTPCRELX = (
    1, 2, 4, 6, 8, 9, 24, 41, 42,
)  # fmt: skip
_ABSOLUTE_32 = (10, 11)  # R_32, R_32S
_PC_RELATIVE = (R_PC32, R_PLT32, R_GOTPCREL, R_GOTPCRELX, R_REX_GOTPCRELX)


def _stub(address: int, slot: int) -> bytes:
    """`jmp *slot(%rip)`, padded with `int3`."""
    return b"\xff\x25" + struct.pack("<i", fits(slot - (address + 6), 32, "stub")) + b"\xcc" * 10


def _apply(data: bytearray, offset: int, type: int, value: int, place: int) -> None:
    if type in _PC_RELATIVE:
        struct.pack_into("<i", data, offset, fits(value - place, 32, "PC-relative address"))
    elif type == R_64:
        struct.pack_into("<Q", data, offset, value & 0xFFFFFFFFFFFFFFFF)
    elif type == R_PC64:
        struct.pack_into("<q", data, offset, value - place)
    elif type in _ABSOLUTE_32:
        raise LinkError("a 32-bit absolute address; emit the object with 'reloc=pic'")
    else:
        raise LinkError(f"x86-64 relocation type {type}; emit the object with 'reloc=pic, codemodel=small'")


def _relax(data: bytearray, offset: int, type: int) -> int | None:
    """`mov slot(%rip), %reg` → `lea symbol(%rip), %reg` (psABI, "Optimize GOTPCRELX Relocations")."""
    if type in (R_GOTPCRELX, R_REX_GOTPCRELX) and offset >= 2 and data[offset - 2] == 0x8B:
        data[offset - 2] = 0x8D
        return R_PC32
    return None


X86_64 = Machine(
    name="x86-64",
    number=62,
    page=0x1000,
    absolute=R_64,
    relative=R_RELATIVE,
    symbol=R_GLOB_DAT,
    got=frozenset((R_GOTPCREL, R_GOTPCRELX, R_REX_GOTPCRELX)),
    calls=frozenset((R_PLT32,)),
    stub_size=16,
    stub=_stub,
    apply=_apply,
    relax=_relax,
)
