"""AArch64 relocations, from "ELF for the Arm 64-bit Architecture", section "Relocation".

Instructions are patched in their immediate fields: `adrp` takes a 21-bit page distance, `add` and loads take the low
12 bits of the address, branches a 26-bit distance in words.
"""

from __future__ import annotations

import struct

from .elf import LinkError
from .machine import Machine, fits

R_ABS64, R_PREL64, R_PREL32 = 257, 260, 261
R_ADR_PAGE, R_ADR_PAGE_NC, R_ADD_LO12 = 275, 276, 277
R_JUMP26, R_CALL26 = 282, 283
R_GOT_PAGE, R_GOT_LO12 = 311, 312
R_GLOB_DAT, R_RELATIVE = 1025, 1027
_PAGES = (R_ADR_PAGE, R_ADR_PAGE_NC, R_GOT_PAGE)
_LOADS = {278: 0, 284: 1, 285: 2, 286: 3, 299: 4, R_GOT_LO12: 3}  # loads and stores: log2 of the bytes accessed


def _stub(address: int, slot: int) -> bytes:
    """`adrp x16, slot; ldr x17, [x16, slot]; br x17; nop`."""
    adrp = _adrp(0x90000010, slot, address)
    load = 0xF9400211 | (slot & 0xFFF) >> 3 << 10
    return struct.pack("<IIII", adrp, load, 0xD61F0220, 0xD503201F)


def _adrp(word: int, value: int, place: int) -> int:
    pages = fits((value >> 12) - (place >> 12), 21, "page address")
    return word & 0x9F00001F | (pages & 3) << 29 | (pages >> 2 & 0x7FFFF) << 5


def _apply(data: bytearray, offset: int, type: int, value: int, place: int) -> None:
    if type == R_ABS64:
        struct.pack_into("<Q", data, offset, value & 0xFFFFFFFFFFFFFFFF)
        return
    if type == R_PREL64:
        struct.pack_into("<q", data, offset, value - place)
        return
    if type == R_PREL32:
        struct.pack_into("<i", data, offset, fits(value - place, 32, "PC-relative address"))
        return
    (word,) = struct.unpack_from("<I", data, offset)
    if type in (R_JUMP26, R_CALL26):
        word = word & 0xFC000000 | fits(value - place, 28, "branch") >> 2 & 0x3FFFFFF
    elif type in _PAGES:
        word = _adrp(word, value, place)
    elif type == R_ADD_LO12:
        word = word & ~(0xFFF << 10) | (value & 0xFFF) << 10
    elif type in _LOADS:
        scale = _LOADS[type]
        if value & ((1 << scale) - 1):
            raise LinkError(f"a load of {1 << scale} bytes from the unaligned address {value:#x}")
        word = word & ~(0xFFF << 10) | (value & 0xFFF) >> scale << 10
    else:
        raise LinkError(f"AArch64 relocation type {type}; emit the object with 'reloc=pic, codemodel=small'")
    struct.pack_into("<I", data, offset, word)


AARCH64 = Machine(
    name="AArch64",
    number=183,
    page=0x10000,
    absolute=R_ABS64,
    relative=R_RELATIVE,
    symbol=R_GLOB_DAT,
    got=frozenset((R_GOT_PAGE, R_GOT_LO12)),
    calls=frozenset((R_JUMP26, R_CALL26)),
    stub_size=16,
    stub=_stub,
    apply=_apply,
)
