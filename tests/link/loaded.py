"""An image as a loader maps it, for the interpreters of other machines' code."""

import struct

BASE = 0x7F0000000000


class Loaded:
    """Segments in memory at BASE, relative relocations applied, imports bound to numbers.

    `imports` maps names to Python functions of x0 and x1; `relocations` are the numbers of (relative, symbol) types.
    """

    def __init__(self, image: bytes, imports, relative, symbol):
        self.memory, self.imports, self.symbols = bytearray(0x80000), {}, {}
        start, count = struct.unpack_from("<Q", image, 32)[0], struct.unpack_from("<H", image, 56)[0]
        for i in range(count):
            kind, _, offset, address, _, size, _, _ = struct.unpack_from("<IIQQQQQQ", image, start + 56 * i)
            if kind == 1:
                self.memory[address : address + size] = image[offset : offset + size]
            if kind == 2:
                tags = dict(struct.unpack_from("<QQ", image, offset + j) for j in range(0, size, 16))
        names = []
        for i in range(struct.unpack_from("<I", self.memory, tags[4] + 4)[0]):
            name, _, _, section, value, _ = struct.unpack_from("<IBBHQQ", self.memory, tags[6] + 24 * i)
            at = tags[5] + name
            names.append(bytes(self.memory[at : self.memory.index(0, at)]).decode())
            if section:
                self.symbols[names[-1]] = value
        tables = [(tags[7], tags[8]), (tags.get(23, 0), tags.get(2, 0))]  # DT_RELA; DT_JMPREL, which only lld makes
        for at in (at for start, size in tables for at in range(start, start + size, 24)):
            place, info, addend = struct.unpack_from("<QQq", self.memory, at)
            value = BASE + addend
            if info & 0xFFFFFFFF != relative:
                assert info & 0xFFFFFFFF in symbol
                value = 0xABC0 + 16 * (info >> 32)
                self.imports[value] = imports[names[info >> 32]]
            struct.pack_into("<Q", self.memory, place, value)

    def load(self, address: int, size: int) -> int:
        return int.from_bytes(self.memory[address - BASE : address - BASE + size], "little")

    def store(self, address: int, value: int, size: int) -> None:
        self.memory[address - BASE : address - BASE + size] = (value & (256**size - 1)).to_bytes(size, "little")
