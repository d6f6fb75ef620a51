"""A reader of MessagePack, in which a code object's metadata is written (https://msgpack.org, spec.md)."""

from __future__ import annotations

import functools
import struct
from typing import Any

_NUMBERS = {0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q"}
_NUMBERS |= {0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q"}
_SIZED = {0xD9: (">B", "text"), 0xDA: (">H", "text"), 0xDB: (">I", "text"), 0xDC: (">H", "list"), 0xDD: (">I", "list")}
_SIZED |= {
    0xDE: (">H", "map"),
    0xDF: (">I", "map"),
    0xC4: (">B", "bytes"),
    0xC5: (">H", "bytes"),
    0xC6: (">I", "bytes"),
}


@functools.lru_cache(maxsize=64)
def unpack(data: bytes) -> Any:
    """The value that `data` holds; not to be changed, since it is remembered."""
    return _Reader(data).value()


class _Reader:
    def __init__(self, data: bytes):
        self.data, self.at = data, 0

    def number(self, form: str) -> Any:
        (value,) = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return value

    def value(self) -> Any:
        tag = self.number(">B")
        if tag < 0x80:
            return tag
        if tag >= 0xE0:
            return tag - 256
        if tag < 0x90:
            return self.sized("map", tag & 15)
        if tag < 0xA0:
            return self.sized("list", tag & 15)
        if tag < 0xC0:
            return self.sized("text", tag & 31)
        if tag in (0xC0, 0xC2, 0xC3):
            return {0xC0: None, 0xC2: False, 0xC3: True}[tag]
        if tag in _NUMBERS:
            return self.number(_NUMBERS[tag])
        form, kind = _SIZED[tag]
        return self.sized(kind, self.number(form))

    def sized(self, kind: str, count: int) -> Any:
        if kind == "list":
            return [self.value() for _ in range(count)]
        if kind == "map":
            return {self.value(): self.value() for _ in range(count)}
        data = self.data[self.at : self.at + count]
        self.at += count
        return data.decode() if kind == "text" else data
