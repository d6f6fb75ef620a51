"""Runs linked RV64IM code: decodes the few instructions that the linker's tests need, from the ISA manual's formats."""

import struct

from .loaded import BASE, Loaded


def _signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


class Machine(Loaded):
    def __init__(self, image: bytes, imports):
        super().__init__(image, imports, relative=3, symbol=(2, 5))

    def call(self, name, *arguments):
        """Run function `name`; returns a0 as a signed 32-bit number."""
        x = [0] * 32
        x[2], x[10 : 10 + len(arguments)] = BASE + 0x70000, arguments
        pc = BASE + self.symbols[name]
        for _ in range(1000):
            (word,) = struct.unpack_from("<I", self.memory, pc - BASE)
            code, rd, kind = word & 0x7F, word >> 7 & 31, word >> 12 & 7
            a, b, imm = x[word >> 15 & 31], x[word >> 20 & 31], _signed(word >> 20, 12)
            after, result = pc + 4, None
            match code:
                case 0x17:  # auipc
                    result = pc + _signed(word & 0xFFFFF000, 32)
                case 0x37:  # lui
                    result = _signed(word & 0xFFFFF000, 32)
                case 0x13 if kind == 0:  # addi
                    result = a + imm
                case 0x1B if kind == 0:  # addiw
                    result = _signed(a + imm, 32)
                case 0x13 if kind == 1:  # slli
                    result = a << (imm & 63)
                case 0x13 if kind == 5 and not word >> 30:  # srli
                    result = (a & (2**64 - 1)) >> (imm & 63)
                case 0x33 if kind == 0 and word >> 25 == 0:  # add
                    result = a + b
                case 0x33 | 0x3B if kind == 0 and word >> 25 == 1:  # mul, mulw
                    result = a * b if code == 0x33 else _signed(a * b, 32)
                case 0x3B if kind == 0:  # addw
                    result = _signed(a + b, 32)
                case 0x03:  # loads
                    size = 1 << (kind & 3)
                    value = self.load(a + imm, size)
                    result = value if kind & 4 else _signed(value, 8 * size)
                case 0x23:  # stores
                    self.store(a + _signed(word >> 25 << 5 | rd, 12), b, 1 << kind)
                case 0x63:  # branches
                    offset = word >> 31 << 12 | (word >> 7 & 1) << 11 | (word >> 25 & 63) << 5 | (word >> 8 & 15) << 1
                    unsigned = kind >= 6
                    left, right = (a & (2**64 - 1), b & (2**64 - 1)) if unsigned else (a, b)
                    taken = left == right if kind < 2 else left < right
                    if taken != (kind & 1):
                        after = pc + _signed(offset, 13)
                case 0x6F:  # jal
                    offset = word >> 31 << 20 | (word >> 12 & 255) << 12 | (word >> 20 & 1) << 11
                    result, after = pc + 4, pc + _signed(offset | (word >> 21 & 1023) << 1, 21)
                case 0x67:  # jalr
                    result, after = pc + 4, a + imm & ~1
                case _:
                    raise NotImplementedError(f"{word:#010x} at {pc - BASE:#x}")
            if result is not None and rd:
                x[rd] = _signed(result, 64)
            if after in self.imports:
                x[10], after = self.imports[after](x[10], x[11]), x[1]
            if after == 0:
                return _signed(x[10], 32)
            pc = after
        raise RuntimeError("does not end")
