"""RISC-V relocations, from "RISC-V ELF psABI", chapter "Relocations".

An address is made by two instructions: `auipc` adds the upper 20 bits of a distance to the program counter, the next
one the lower 12. The relocation of the second names the first by its label (`Machine.low`). Linker relaxation is
optional and not done: objects must be emitted without it, as LLVM does unless asked.
"""

from __future__ import annotations

import struct

from .elf import LinkError
from .machine import Machine, fits

R_64, R_RELATIVE = 2, 3
R_BRANCH, R_JAL, R_CALL, R_CALL_PLT = 16, 17, 18, 19
R_GOT_HI20, R_PCREL_HI20, R_PCREL_LO12_I, R_PCREL_LO12_S = 20, 23, 24, 25
R_RELAX, R_PLT32, R_32_PCREL = 51, 59, 57
_ADD = {33: "B", 34: "H", 35: "I", 36: "Q"}  # label differences in tables: *P += S + A, then *P -= S + A
_SUB = {37: "B", 38: "H", 39: "I", 40: "Q"}


def _high(distance: int) -> int:
    """The immediate of `auipc`: rounded, since the low part is signed."""
    return (fits(distance, 32, "PC-relative address") + 0x800) & 0xFFFFF000


def _i(word: int, value: int) -> int:
    return word & 0xFFFFF | (value & 0xFFF) << 20


def _s(word: int, value: int) -> int:
    return word & 0x1FFF07F | (value >> 5 & 0x7F) << 25 | (value & 0x1F) << 7


def _b(word: int, value: int) -> int:
    value = fits(value, 13, "branch")
    return (
        word & 0x1FFF07F | (value >> 12 & 1) << 31 | (value >> 5 & 0x3F) << 25 | (value >> 1 & 0xF) << 8
        | (value >> 11 & 1) << 7
    )  # fmt: skip


def _j(word: int, value: int) -> int:
    value = fits(value, 21, "jump")
    return (
        word & 0xFFF | (value >> 20 & 1) << 31 | (value >> 1 & 0x3FF) << 21 | (value >> 11 & 1) << 20
        | (value >> 12 & 0xFF) << 12
    )  # fmt: skip


def _stub(address: int, slot: int) -> bytes:
    """`auipc t3, slot; ld t3, slot(t3); jalr t1, t3; nop`."""
    distance = slot - address
    return struct.pack("<IIII", 0x00000E17 | _high(distance), _i(0x000E3E03, distance), 0x000E0367, 0x00000013)


def _apply(data: bytearray, offset: int, type: int, value: int, place: int) -> None:
    distance = value - place
    if type == R_64:
        struct.pack_into("<Q", data, offset, value & 0xFFFFFFFFFFFFFFFF)
    elif type in _ADD or type in _SUB:
        form = "<" + (_ADD.get(type) or _SUB[type])
        (old,) = struct.unpack_from(form, data, offset)
        new = old + value if type in _ADD else old - value
        struct.pack_into(form, data, offset, new & ((1 << 8 * struct.calcsize(form)) - 1))
    elif type in (R_PLT32, R_32_PCREL):
        struct.pack_into("<i", data, offset, fits(distance, 32, "PC-relative address"))
    elif type in (R_CALL, R_CALL_PLT):
        first, second = struct.unpack_from("<II", data, offset)
        struct.pack_into("<II", data, offset, first & 0xFFF | _high(distance), _i(second, distance))
    elif type in _ONE_WORD:
        (word,) = struct.unpack_from("<I", data, offset)
        struct.pack_into("<I", data, offset, _ONE_WORD[type](word, distance))
    elif type != R_RELAX:
        raise LinkError(f"RISC-V relocation type {type}; emit the object with 'reloc=pic' and without relaxation")


_ONE_WORD = {
    R_BRANCH: _b,
    R_JAL: _j,
    R_GOT_HI20: lambda word, distance: word & 0xFFF | _high(distance),
    R_PCREL_HI20: lambda word, distance: word & 0xFFF | _high(distance),
    R_PCREL_LO12_I: _i,
    R_PCREL_LO12_S: _s,
}


RISCV64 = Machine(
    name="RISC-V",
    number=243,
    page=0x1000,
    absolute=R_64,
    relative=R_RELATIVE,
    symbol=R_64,
    got=frozenset((R_GOT_HI20,)),
    calls=frozenset((R_CALL, R_CALL_PLT)),
    stub_size=16,
    stub=_stub,
    apply=_apply,
    high=frozenset((R_GOT_HI20, R_PCREL_HI20)),
    low=frozenset((R_PCREL_LO12_I, R_PCREL_LO12_S)),
)
