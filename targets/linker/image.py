"""Write a shared object: ELF header, program headers, the placed sections, symbol table and section headers."""

from __future__ import annotations

from collections.abc import Mapping

from .elf import (
    ALLOC,
    DYN,
    GLOBAL,
    HEADER,
    LOCAL,
    MAGIC,
    NOBITS,
    NOTE,
    PROGRAM_HEADER,
    SECTION_HEADER,
    STRTAB,
    SYMBOL,
    SYMTAB,
    Section,
    Symbol,
)
from .layout import READ, RELOCATED, Output, Segment

_LOAD, _DYNAMIC, _NOTE, _HEADERS, _STACK, _RELRO = 1, 2, 4, 6, 0x6474E551, 0x6474E552


class Strings:
    """A string table under construction."""

    def __init__(self) -> None:
        self.data = bytearray(b"\0")
        self._at = {"": 0}

    def add(self, text: str) -> int:
        """Return the offset of `text`, adding it at its first use."""
        if text not in self._at:
            self._at[text] = len(self.data)
            self.data += text.encode() + b"\0"
        return self._at[text]


def header_size(segments: int, relro: bool, note: bool = False) -> int:
    """Bytes of the ELF header and the program headers of an image with so many PT_LOADs."""
    return HEADER.size + PROGRAM_HEADER.size * (segments + 3 + relro + note)


def symbol_table(
    symbols: list[Symbol], strings: Strings, index_of: Mapping[int, int], local_first: bool = True
) -> tuple[bytearray, int]:
    """The bytes of a symbol table and the number of its first global symbol.

    `index_of` maps an input section (by `id`) to the number of its section in the image.
    """
    ordered = sorted(symbols, key=lambda s: s.binding != LOCAL) if local_first else symbols
    table = bytearray(SYMBOL.size)
    for s in ordered:
        index = index_of[id(s.section)] if s.section else 0
        table += SYMBOL.pack(strings.add(s.name), s.binding << 4 | s.type, s.visibility, index, s.address, s.size)
    return table, 1 + sum(s.binding == LOCAL for s in ordered)


def write(
    segments: list[Segment],
    end: int,
    machine: int,
    page: int,
    symbols: list[Symbol],
    e_flags: int = 0,
    ident: bytes = MAGIC.ljust(16, b"\0"),
) -> bytes:
    """Return the bytes of the image. `symbols` go to `.symtab`, for debuggers, profilers and AMD's loader."""
    placed = [output for segment in segments for output in segment.outputs]
    body = bytearray(end)
    for output in placed:
        if output.type == NOBITS:
            continue
        for part in output.parts:
            at = output.offset + part.address - output.address
            body[at : at + part.size] = part.data

    index_of = {id(part): i for i, output in enumerate(placed, 1) for part in output.parts}
    strings, names = Strings(), Strings()
    table, first_global = symbol_table(symbols, strings, index_of)
    extra = [
        _unplaced(".symtab", SYMTAB, table, 8, SYMBOL.size, ".strtab", first_global),
        _unplaced(".strtab", STRTAB, strings.data),
        _unplaced(".shstrtab", STRTAB, bytearray()),
    ]
    everything = placed + extra
    for output in everything:
        names.add(output.name)
    extra[2].parts[0].data, extra[2].size = names.data, len(names.data)
    for output in extra:
        body += bytes(-len(body) % output.align)
        output.offset = len(body)
        body += output.parts[0].data
    body += bytes(-len(body) % 8)

    headers_at = len(body)
    numbers = {output.name: i for i, output in enumerate(everything, 1)}
    body += bytes(SECTION_HEADER.size)
    for o in everything:
        flags = o.flags if o.flags & ALLOC else 0
        link = numbers[o.link] if o.link else 0
        body += SECTION_HEADER.pack(
            names.add(o.name), o.type, flags, o.address, o.offset, o.size, link, o.info, o.align, o.entry_size
        )
    programs = _program_headers(segments, page)
    HEADER.pack_into(
        body, 0, ident, DYN, machine, 1, 0, HEADER.size, headers_at, e_flags, HEADER.size,
        PROGRAM_HEADER.size, len(programs), SECTION_HEADER.size, len(everything) + 1, len(everything),
    )  # fmt: skip
    body[HEADER.size : HEADER.size + PROGRAM_HEADER.size * len(programs)] = b"".join(programs)
    return bytes(body)


def _program_headers(segments: list[Segment], page: int) -> list[bytes]:
    headers = []

    def add(type: int, flags: int, offset: int, address: int, file_size: int, memory_size: int, align: int) -> None:
        headers.append(PROGRAM_HEADER.pack(type, flags, offset, address, address, file_size, memory_size, align))

    relro = [s for s in segments if s.relocated]
    notes = [o for s in segments for o in s.outputs if o.type == NOTE]
    size = header_size(len(segments), bool(relro), bool(notes)) - HEADER.size
    add(_HEADERS, READ, HEADER.size, HEADER.size, size, size, 8)
    for s in segments:
        # what is made read-only must be mapped, to the end of the largest page of the machine
        memory = -(-(s.address + s.memory_size) // page) * page - s.address if s.relocated else s.memory_size
        add(_LOAD, s.flags, s.offset, s.address, s.file_size, memory, page)
    dynamic = next(o for s in segments for o in s.outputs if o.name == ".dynamic")
    add(_DYNAMIC, RELOCATED, dynamic.offset, dynamic.address, dynamic.size, dynamic.size, 8)
    for s in relro:  # up to the end of the page: the loader protects whole pages only
        end = -(-(s.address + s.memory_size) // page) * page
        add(_RELRO, READ, s.offset, s.address, s.file_size, end - s.address, 1)
    for o in notes:
        add(_NOTE, READ, o.offset, o.address, o.size, o.size, o.align)
    add(_STACK, RELOCATED, 0, 0, 0, 0, 16)  # a stack without execute permission
    return headers


def _unplaced(
    name: str, type: int, data: bytearray, align: int = 1, entry_size: int = 0, link: str = "", info: int = 0
) -> Output:
    section = Section(name, type, 0, data, align, len(data))
    return Output(name, type, 0, [section], align, 0, 0, len(data), entry_size, link, info)


def exported(symbols: list[Symbol]) -> list[Symbol]:
    """Copies that are global: a weak definition that was chosen is the definition of the image."""
    return [Symbol(s.name, GLOBAL, s.type, 0, s.section, s.value, s.size, True, s.object) for s in symbols]
