"""Place sections in memory: which segment each belongs to, its file offset and its address.

Segments, in this order, each on pages of its own (none is both writable and executable):

    read       headers, dynamic tables, constants
    execute    code, stubs
    relocated  constants with addresses, .dynamic, .got; read-only once the loader has relocated them (GNU_RELRO)
    write      data, then zero-filled data, which takes no room in the file

Addresses are the file offset plus whole pages, so the file has no padding between segments.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from .elf import CONSTRUCTORS, EXECINSTR, NOBITS, NOTE, TLS, UNWIND, WRITE, LinkError, Section

READ, EXECUTE, RELOCATED, WRITABLE = 4, 5, 6, 6  # p_flags: R = 4, W = 2, X = 1


@dataclass
class Output:
    """A section of the image: input sections of one kind, side by side."""

    name: str
    type: int
    flags: int
    parts: list[Section]
    align: int = 1
    offset: int = 0
    address: int = 0
    size: int = 0
    entry_size: int = 0
    link: str = ""  # name of the section that sh_link points to
    info: int = 0


@dataclass
class Segment:
    """A PT_LOAD: its outputs and its extent in file and memory."""

    flags: int
    outputs: list[Output]
    relocated: bool = False
    offset: int = 0
    address: int = 0
    file_size: int = 0
    memory_size: int = 0
    by_name: dict[str, Output] = field(default_factory=dict)


def wanted(section: Section, notes: bool = False) -> bool:
    """True for sections that are linked: notes on request, no unwind tables (nothing unwinds through kernels)."""
    if section.flags & TLS:
        raise LinkError(f"{section.object}: thread-local variables ({section.name}) are not supported")
    if section.type in CONSTRUCTORS or section.name.startswith((".ctors", ".dtors")):
        raise LinkError(f"{section.object}: constructors ({section.name}) are not supported")
    return section.type != UNWIND and section.name != ".eh_frame" and (notes or section.type != NOTE)


def group(sections: Iterable[Section]) -> dict[str, Output]:
    """Sort the objects' sections into `.note`, `.rodata`, `.text`, `.data.rel.ro`, `.data`, `.bss`, in order of input."""
    outputs: dict[str, Output] = {}
    for section in sections:
        name = _kind(section)
        flags = section.flags & (WRITE | EXECINSTR) | 2
        output = outputs.setdefault(name, Output(name, section.type, flags, []))
        output.parts.append(section)
    return outputs


def _kind(section: Section) -> str:
    if section.flags & EXECINSTR:
        if section.flags & WRITE:
            raise LinkError(f"{section.object}: section {section.name} is both writable and executable")
        return ".text"
    if section.type == NOTE:
        return ".note"
    if not section.flags & WRITE:
        return ".rodata"
    if section.name.startswith(".data.rel.ro"):
        return ".data.rel.ro"
    return ".bss" if section.type == NOBITS else ".data"


def place(segments: list[Segment], start: int, page: int) -> int:
    """Give every section its offset and address, the first segment beginning with `start` bytes of headers.

    Returns the end of the file.
    """
    offset = address = start
    for number, segment in enumerate(segments):
        if number:
            align = max([16, *(part.align for output in segment.outputs for part in output.parts)])
            offset = -(-offset // align) * align
            address = -(-address // page) * page + offset % page
        segment.offset, segment.address = (offset, address) if number else (0, 0)
        for output in segment.outputs:
            output.align = max([output.align, *(part.align for part in output.parts)])
            if output.align > page:
                raise LinkError(
                    f"section {output.name} asks for an alignment of {output.align}, above a page of {page}"
                )
            pad = -address % output.align
            offset, address = offset + pad, address + pad
            output.offset, output.address = offset, address
            for part in output.parts:
                address += -address % part.align
                part.address = address
                address += part.size
            output.size = address - output.address
            if output.type != NOBITS:
                offset += output.size
        segment.file_size, segment.memory_size = offset - segment.offset, address - segment.address
    return offset
