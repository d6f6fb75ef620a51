"""The tables that the system's loader reads: dynamic symbols, their hash table, relocations and `.dynamic`."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from .elf import (
    ALLOC,
    DYNAMIC,
    DYNSYM,
    EXECINSTR,
    HASH,
    PROGBITS,
    RELA,
    RELOCATION,
    STRTAB,
    SYMBOL,
    WRITE,
    Section,
    Symbol,
)
from .image import Strings, exported, symbol_table
from .layout import Output
from .machine import Machine
from .resolve import Names

# tags of .dynamic
_END, _NEEDED, _HASH, _STRTAB, _SYMTAB, _RELA, _RELA_SIZE, _RELA_ENTRY, _STR_SIZE, _SYM_ENTRY, _SONAME, _FLAGS = (
    0, 1, 4, 5, 6, 7, 8, 9, 10, 11, 14, 30,
)  # fmt: skip
_BIND_NOW = 8


@dataclass
class Patch:
    """A relocation that the loader applies: `symbol` (number in the dynamic table, 0: none) plus `addend`."""

    address: int
    type: int
    symbol: int
    addend: int


class DynamicTables:
    """Tables sized before layout and filled after it.

    `got` are symbols that want a slot, `stubs` imported functions that are called, `patches` the number of relocations
    that the loader will apply.
    """

    def __init__(
        self, machine: Machine, names: Names, got: list[Symbol], stubs: list[Symbol], patches: int, soname: str
    ):
        self.machine, self.got, self.stubs = machine, got, stubs
        self.strings = Strings()
        self.symbols = [*names.imports.values(), *exported(names.exports)]
        self.number = {s.name: i for i, s in enumerate(self.symbols, 1)}
        for s in self.symbols:
            self.strings.add(s.name)
        self.entries = [(_NEEDED, self.strings.add(lib)) for lib in names.needed]
        if soname:
            self.entries.append((_SONAME, self.strings.add(soname)))

        def made(name: str, type: int, flags: int, size: int, align: int = 8, entry: int = 0, link: str = "") -> Output:
            section = Section(name, type, flags | ALLOC, bytearray(size), align, size)
            return Output(name, type, flags | ALLOC, [section], align, entry_size=entry, link=link)

        count = len(self.symbols) + 1
        self.dynsym = made(".dynsym", DYNSYM, 0, SYMBOL.size * count, entry=SYMBOL.size, link=".dynstr")
        self.dynsym.info = 1
        self.hash = made(".hash", HASH, 0, 4 * (2 + 2 * count), entry=4, link=".dynsym")
        self.dynstr = made(".dynstr", STRTAB, 0, len(self.strings.data), align=1)
        self.rela = made(".rela.dyn", RELA, 0, RELOCATION.size * patches, entry=RELOCATION.size, link=".dynsym")
        self.dynamic = made(".dynamic", DYNAMIC, WRITE, 16 * (len(self.entries) + 10), entry=16, link=".dynstr")
        self.got_output = made(".got", PROGBITS, WRITE, 8 * len(got))
        self.plt = made(".plt", PROGBITS, EXECINSTR, machine.stub_size * len(stubs), align=16)

    def slot(self, symbol: Symbol) -> int:
        """Address of the GOT slot of `symbol`, after layout."""
        return self.got_output.address + 8 * self.got.index(symbol)

    def stub(self, symbol: Symbol) -> int:
        """Address of the stub that calls `symbol`, after layout."""
        return self.plt.address + self.machine.stub_size * self.stubs.index(symbol)

    def fill(self, patches: list[Patch], index_of: dict[int, int]) -> None:
        """Write all tables; `patches` are those of the sections, the GOT's own are added."""
        code = b"".join(self.machine.stub(self.stub(s), self.slot(s)) for s in self.stubs)
        _set(self.plt, code)
        patches = patches + [self._got_patch(s) for s in self.got if s.defined or s.name in self.number]
        patches.sort(key=lambda p: (p.type != self.machine.relative, p.address))
        _set(self.rela, b"".join(RELOCATION.pack(p.address, p.symbol << 32 | p.type, p.addend) for p in patches))
        _set(self.dynsym, symbol_table(self.symbols, self.strings, index_of, local_first=False)[0])
        _set(self.dynstr, self.strings.data)
        _set(self.hash, _hash_table([s.name for s in self.symbols]))
        entries = self.entries + [
            (_HASH, self.hash.address),
            (_STRTAB, self.dynstr.address),
            (_SYMTAB, self.dynsym.address),
            (_STR_SIZE, self.dynstr.size),
            (_SYM_ENTRY, SYMBOL.size),
            (_RELA, self.rela.address),
            (_RELA_SIZE, self.rela.size),
            (_RELA_ENTRY, RELOCATION.size),
            (_FLAGS, _BIND_NOW),
            (_END, 0),
        ]
        _set(self.dynamic, b"".join(struct.pack("<QQ", tag, value) for tag, value in entries))

    def _got_patch(self, symbol: Symbol) -> Patch:
        if symbol.defined:
            return Patch(self.slot(symbol), self.machine.relative, 0, symbol.address)
        return Patch(self.slot(symbol), self.machine.symbol, self.number[symbol.name], 0)


def _set(output: Output, data: bytes | bytearray) -> None:
    assert len(data) == output.size, (output.name, len(data), output.size)
    output.parts[0].data[:] = data


def _hash_table(names: list[str]) -> bytes:
    """The System V hash table, one bucket a symbol: bucket count, chain length, buckets, chains."""
    count = len(names) + 1
    buckets, chains = [0] * count, [0] * count
    for i, name in enumerate(names, 1):
        bucket = _hash(name) % count
        chains[i], buckets[bucket] = buckets[bucket], i
    return struct.pack(f"<{2 + 2 * count}I", count, count, *buckets, *chains)


def _hash(name: str) -> int:
    value = 0
    for byte in name.encode():
        value = (value << 4) + byte
        value = (value ^ (value & 0xF0000000) >> 24) & 0x0FFFFFFF
    return value
