"""A linker in Python: relocatable ELF64 objects in, one shared object out. No system linker is needed.

    image = link([read_object(host, "host"), read_object(kernel, "k0")], exports=["lamina_main"])

Calls and addresses between the objects are resolved here; what is left for the system's loader is the load base and
the functions of `libraries.py`, reached through GOT slots and stubs and bound when the image is loaded. The image is a
function of its inputs: equal objects give equal bytes. Unwind tables are dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from .aarch64 import AARCH64
from .amdgpu import AMDGPU
from .dynamic import DynamicTables, Patch
from .elf import FILE, LOCAL, LinkError, Object, Relocation, Section, Symbol, read_object
from .image import header_size, write
from .layout import EXECUTE, READ, RELOCATED, WRITABLE, Segment, group, place, wanted
from .libraries import LIBRARIES
from .machine import Machine
from .resolve import resolve
from .riscv64 import RISCV64
from .x86_64 import X86_64

__all__ = ["LIBRARIES", "MACHINES", "LinkError", "link", "read_object"]

MACHINES: dict[int, Machine] = {m.number: m for m in (X86_64, AARCH64, RISCV64, AMDGPU)}


def link(
    objects: Sequence[Object | bytes],
    exports: Iterable[str] | None = None,
    soname: str = "",
    libraries: Mapping[str, Iterable[str]] = LIBRARIES,
) -> bytes:
    """Link `objects` into a shared object that exports the symbols `exports` (None: all that are not hidden).

    LinkError names undefined and doubly defined symbols, missing exports, and what objects may not contain:
    thread-local variables, constructors, absolute 32-bit addresses.
    """
    read = [o if isinstance(o, Object) else read_object(o, f"object {i}") for i, o in enumerate(objects)]
    machine = _machine(read)
    sections = [s for o in read for s in o.sections if wanted(s, machine.notes)]
    names = resolve(read, sections, libraries, exports)
    _relax(sections, machine)
    got, stubs, patches = _needs(sections, machine, set(names.imports))
    tables = DynamicTables(machine, names, got, stubs, patches, soname)

    outputs = group(sections)
    loads = (
        (READ, [outputs.get(".note"), tables.dynsym, tables.hash, tables.dynstr, tables.rela, outputs.get(".rodata")]),
        (EXECUTE, [outputs.get(".text"), tables.plt if stubs else None]),
        (RELOCATED, [outputs.get(".data.rel.ro"), tables.dynamic, tables.got_output if got else None]),
        (WRITABLE, [outputs.get(".data"), outputs.get(".bss")]),
    )
    segments = [Segment(flags, present) for flags, all in loads if (present := [o for o in all if o])]
    next(s for s in segments if tables.dynamic in s.outputs).relocated = True
    end = place(segments, header_size(len(segments), True, ".note" in outputs), machine.page)

    numbers = {id(p): i for i, o in enumerate((o for s in segments for o in s.outputs), 1) for p in o.parts}
    tables.fill(_apply(sections, machine, tables), numbers)
    return write(segments, end, machine.number, machine.page, _named(read, numbers), read[0].flags, read[0].ident)


def _machine(objects: list[Object]) -> Machine:
    if not objects:
        raise LinkError("nothing to link")
    for o in objects:
        if o.machine not in MACHINES:
            known = ", ".join(f"{m.name} ({m.number})" for m in MACHINES.values())
            raise LinkError(f"{o.name}: ELF machine {o.machine} is not supported; supported: {known}")
        if o.machine != objects[0].machine:
            raise LinkError(f"{o.name} is for ELF machine {o.machine}, {objects[0].name} for {objects[0].machine}")
    return MACHINES[objects[0].machine]


def _relax(sections: list[Section], machine: Machine) -> None:
    """Turn loads of the address of a symbol of this image from the GOT into computing it."""
    for section in sections:
        for r in section.relocations:
            if r.type in machine.got and r.symbol.section is not None:
                r.type = machine.relax(section.data, r.offset, r.type) or r.type


def _needs(sections: list[Section], machine: Machine, imports: set[str]) -> tuple[list[Symbol], list[Symbol], int]:
    """Symbols that want a GOT slot, imports that want a stub, and how many relocations the loader will apply."""
    got: dict[str | int, Symbol] = {}
    stubs: dict[str, Symbol] = {}
    patches = 0
    for section in sections:
        for r in section.relocations:
            imported = not r.symbol.defined and r.symbol.name in imports
            called = imported and r.type in machine.calls
            if r.type in machine.got or called:
                # one slot a name; a local symbol's name is not its identity
                got.setdefault(id(r.symbol) if r.symbol.binding == LOCAL else r.symbol.name, r.symbol)
            if called:
                stubs.setdefault(r.symbol.name, r.symbol)
            patches += r.type == machine.absolute and (imported or r.symbol.section is not None)
    patches += sum(s.section is not None or s.name in imports for s in got.values())
    return list(got.values()), list(stubs.values()), patches


def _apply(sections: list[Section], machine: Machine, tables: DynamicTables) -> list[Patch]:
    """Patch every section, and return what only the loader can patch."""
    slots = {s.name if s.binding != LOCAL else id(s): tables.slot(s) for s in tables.got}
    stubs = {s.name: tables.stub(s) for s in tables.stubs}
    patches: list[Patch] = []
    highs: dict[int, int] = {}  # where the first half of an address is made → the distance it is half of
    later: list[tuple[Section, Relocation]] = []

    def patch(section: Section, r: Relocation, value: int) -> None:
        try:
            machine.apply(section.data, r.offset, r.type, value, section.address + r.offset)
        except LinkError as error:
            raise LinkError(f"{section.object}: '{r.symbol.name}' in {section.name}: {error}") from None

    for section in sections:
        for r in section.relocations:
            symbol, at = r.symbol, section.address + r.offset
            imported = not symbol.defined and symbol.name in tables.number
            value = symbol.address + r.addend
            if r.type in machine.low:
                later.append((section, r))
                continue
            if r.type in machine.got:
                value = slots[id(symbol) if symbol.binding == LOCAL else symbol.name] + r.addend
            elif imported and r.type in machine.calls:
                value = stubs[symbol.name] + r.addend
            elif r.type == machine.absolute:
                if imported:
                    patches.append(Patch(at, machine.absolute, tables.number[symbol.name], r.addend))
                elif symbol.section is not None:
                    patches.append(Patch(at, machine.relative, 0, value))
            elif imported:
                raise LinkError(
                    f"{section.object}: the address of '{symbol.name}' is used directly; emit it with 'reloc=pic'"
                )
            if r.type in machine.high:
                highs[at] = value - at
            patch(section, r, value)
    for section, r in later:
        if r.symbol.address not in highs:
            raise LinkError(f"{section.object}: the low half of an address in {section.name} has no high half")
        patch(section, r, section.address + r.offset + highs[r.symbol.address])
    return patches


def _named(objects: list[Object], numbers: dict[int, int]) -> list[Symbol]:
    """Symbols worth a line in a profile: all with a name and a place, but no section or file names."""
    return [
        s
        for o in objects
        for s in o.symbols
        if s.name and s.type != FILE and s.section is not None and id(s.section) in numbers
    ]
