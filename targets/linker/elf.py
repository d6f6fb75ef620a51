"""Read relocatable ELF64 objects, and the ELF constants that reader and writer share.

Names of fields and constants are those of the System V ABI, chapter "Object Files", without their prefixes.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

REL = 1  # e_type of an object
DYN = 3  # e_type of a shared object

# section types
PROGBITS, SYMTAB, STRTAB, RELA, HASH, DYNAMIC, NOTE, NOBITS, REL_TABLE, DYNSYM = 1, 2, 3, 4, 5, 6, 7, 8, 9, 11
CONSTRUCTORS = (14, 15, 16)  # INIT_ARRAY, FINI_ARRAY, PREINIT_ARRAY
UNWIND = 0x70000001  # X86_64_UNWIND

# section flags
WRITE, ALLOC, EXECINSTR, TLS = 0x1, 0x2, 0x4, 0x400

# symbols
LOCAL, GLOBAL, WEAK = 0, 1, 2
SECTION, FILE, IFUNC = 3, 4, 10
DEFAULT, INTERNAL, HIDDEN, PROTECTED = 0, 1, 2, 3
UNDEF, ABS, COMMON = 0, 0xFFF1, 0xFFF2

HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
SECTION_HEADER = struct.Struct("<IIQQQQIIQQ")
PROGRAM_HEADER = struct.Struct("<IIQQQQQQ")
SYMBOL = struct.Struct("<IBBHQQ")
RELOCATION = struct.Struct("<QQq")
MAGIC = b"\x7fELF\x02\x01\x01"  # 64 bits, little-endian, version 1


class LinkError(ValueError):
    """Objects that cannot be linked. The message names the object, the symbol and the way out."""


@dataclass(eq=False)
class Symbol:
    """One symbol of one object; `section` is None for undefined and absolute symbols."""

    name: str
    binding: int
    type: int
    visibility: int
    section: Section | None
    value: int
    size: int
    defined: bool
    object: str

    @property
    def address(self) -> int:
        """Address after layout; 0 for undefined symbols."""
        return self.value + (self.section.address if self.section else 0)


@dataclass(eq=False)
class Relocation:
    """Patch `section.data[offset:]` with a value computed from `symbol` and `addend` as `type` says."""

    offset: int
    type: int
    symbol: Symbol
    addend: int


@dataclass(eq=False)
class Section:
    """One section in memory: of an object, or made by the linker. `address` is set by the layout."""

    name: str
    type: int
    flags: int
    data: bytearray
    align: int = 1
    size: int = 0
    address: int = 0
    relocations: list[Relocation] = field(default_factory=list)
    object: str = ""


@dataclass(eq=False)
class Object:
    """A relocatable object: the sections that end up in memory, and all symbols."""

    name: str
    machine: int
    sections: list[Section]
    symbols: list[Symbol]
    flags: int = 0  # e_flags: RISC-V's floating-point ABI, AMD's chip
    ident: bytes = MAGIC.ljust(16, b"\0")  # e_ident: with it the system and the version of its ABI


def read_object(data: bytes, name: str = "object", rename: Mapping[str, str] | None = None) -> Object:
    """Read an object; `rename` gives global symbols other names. LinkError says why bytes are refused."""
    try:
        return _read(data, name, rename or {})
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise LinkError(f"{name}: the object is damaged ({error})") from None


def _read(data: bytes, name: str, rename: Mapping[str, str]) -> Object:
    if data[: len(MAGIC)] != MAGIC:
        raise LinkError(f"{name}: not a little-endian ELF64 object")
    ident, kind, machine, _, _, _, header_at, e_flags, _, _, _, _, count, names_index = HEADER.unpack_from(data)
    if kind != REL:
        raise LinkError(f"{name}: not a relocatable object (ELF type {kind}); emit one with 'reloc=pic'")
    headers = [SECTION_HEADER.unpack_from(data, header_at + i * SECTION_HEADER.size) for i in range(count)]
    for _, type_, _, _, offset, size, *_ in headers:
        if type_ != NOBITS and offset + size > len(data):
            raise LinkError(f"{name}: the object is damaged (a section ends behind the file)")
    strings = data[headers[names_index][4] :]

    by_index: dict[int, Section] = {}
    for i, (name_at, type_, flags, _, offset, size, _, _, align, _) in enumerate(headers):
        if not flags & ALLOC:
            continue
        content = bytearray(size) if type_ == NOBITS else bytearray(data[offset : offset + size])
        text = _string(strings, name_at)
        by_index[i] = Section(text, type_, flags, content, max(align, 1), size, object=name)

    symbols = _read_symbols(data, name, headers, by_index, rename)
    for _, type_, _, _, offset, size, _, target, _, _ in headers:
        if target not in by_index:
            continue
        if type_ == REL_TABLE:
            raise LinkError(f"{name}: relocations without addends are not supported")
        if type_ == RELA:
            by_index[target].relocations += [
                Relocation(at, info & 0xFFFFFFFF, symbols[info >> 32], addend)
                for at, info, addend in RELOCATION.iter_unpack(data[offset : offset + size])
            ]
    return Object(name, machine, list(by_index.values()), symbols, e_flags, ident)


def _read_symbols(
    data: bytes, name: str, headers: list[tuple], by_index: dict[int, Section], rename: Mapping[str, str]
) -> list[Symbol]:
    table = next((h for h in headers if h[1] == SYMTAB), None)
    if table is None:
        return []
    strings = data[headers[table[6]][4] :]
    symbols = []
    for name_at, info, other, index, value, size in SYMBOL.iter_unpack(data[table[4] : table[4] + table[5]]):
        text = _string(strings, name_at)
        if index == COMMON or (index >= 0xFF00 and index != ABS):
            raise LinkError(f"{name}: symbol '{text}' is in a special section ({index:#x}); use '-fno-common'")
        binding = info >> 4
        if binding != LOCAL:
            text = rename.get(text, text)
        section = by_index.get(index)
        symbols.append(Symbol(text, binding, info & 15, other & 3, section, value, size, index != UNDEF, name))
    return symbols


def _string(table: bytes, at: int) -> str:
    return table[at : table.index(b"\0", at)].decode()
