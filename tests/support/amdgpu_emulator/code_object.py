"""An AMDGPU code object as the driver loads it: segments, relocations, symbols, kernel descriptors, metadata.

Sources: LLVM's "User Guide for AMDGPU Backend", sections Code Object, Kernel Descriptor and Code Object Metadata.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import msgpack
from .chips import Chip, chip_of
from .errors import EmulatorError

_PT_LOAD, _PT_DYNAMIC, _PT_NOTE = 1, 2, 4
_DT_HASH, _DT_STRTAB, _DT_SYMTAB, _DT_RELA, _DT_RELASZ = 4, 5, 6, 7, 8
_R_ABS64, _R_RELATIVE64 = 3, 13
_NT_METADATA = 32


@dataclass(frozen=True)
class Kernel:
    """A kernel: what its descriptor and its metadata say."""

    name: str
    entry: int  # offset of the code in the image
    lds: int  # static bytes
    private: int  # scratch bytes of a lane
    kernarg: int
    user_sgprs: int
    properties: int
    group_ids: tuple[bool, bool, bool]  # which workgroup ids come in SGPRs
    vgprs: int  # registers of a lane given to a wave; AGPRs are part of them
    first_agpr: int
    metadata: dict[str, Any]


class CodeObject:
    """A loaded code object. `image` is its memory; addresses in it are real."""

    def __init__(self, data: bytes):
        if data[:4] != b"\x7fELF" or struct.unpack_from("<H", data, 18)[0] != 224:
            raise EmulatorError("this is no AMDGPU code object")
        if data[8] != 3:
            raise EmulatorError(f"the code object's ABI version is {data[8]}; version 5 of the format has 3")
        self.data = data
        self.chip: Chip = chip_of(struct.unpack_from("<I", data, 48)[0])
        start, count = struct.unpack_from("<Q", data, 32)[0], struct.unpack_from("<H", data, 56)[0]
        headers = [struct.unpack_from("<IIQQQQQQ", data, start + 56 * i) for i in range(count)]
        size = max(h[3] + h[6] for h in headers if h[0] == _PT_LOAD)
        room = np.zeros(size + 8192, np.uint8)
        self.image = room[-room.ctypes.data % 4096 :][:size]
        self.base = self.image.ctypes.data
        for kind, _, offset, address, _, length, _, _ in headers:
            if kind == _PT_LOAD:
                self.image[address : address + length] = np.frombuffer(data, np.uint8, length, offset)
        self.metadata: dict[str, Any] = {}
        for kind, _, offset, address, _, length, _, _ in headers:
            if kind == _PT_NOTE:
                self._read_notes(offset, offset + length)
            elif kind == _PT_DYNAMIC:
                self._link(address, length)
        self.kernels = {m[".name"]: self._kernel(m) for m in self.metadata.get("amdhsa.kernels", ())}

    def _unpack(self, form: str, at: int) -> tuple[Any, ...]:
        return struct.unpack_from(form, self.image.data, at)

    def _read_notes(self, at: int, end: int) -> None:
        while at < end:
            name_size, size, kind = struct.unpack_from("<III", self.data, at)
            name = self.data[at + 12 : at + 12 + name_size].rstrip(b"\0")
            at += 12 + -(-name_size // 4) * 4
            if kind == _NT_METADATA and name == b"AMDGPU":
                self.metadata = msgpack.unpack(self.data[at : at + size])
            at += -(-size // 4) * 4

    def _link(self, at: int, length: int) -> None:
        """Read the symbols and apply the dynamic relocations."""
        table = dict(self._unpack("<QQ", at + 16 * i) for i in range(length // 16))
        symbols, names = table[_DT_SYMTAB], table[_DT_STRTAB]
        values = []
        self.symbols: dict[str, int] = {}
        for i in range(self._unpack("<II", table[_DT_HASH])[1]):
            name, _, _, _, value, _ = self._unpack("<IBBHQQ", symbols + 24 * i)
            values.append(value)
            self.symbols[bytes(self.image[names + name : names + name + 512]).split(b"\0")[0].decode()] = value
        for i in range(table.get(_DT_RELASZ, 0) // 24):
            offset, info, addend = self._unpack("<QQq", table[_DT_RELA] + 24 * i)
            kind = info & 0xFFFFFFFF
            if kind not in (_R_ABS64, _R_RELATIVE64):
                raise EmulatorError(f"dynamic relocation {kind} of the code object is not ABS64 or RELATIVE64")
            value = self.base + addend + (values[info >> 32] if kind == _R_ABS64 else 0)
            struct.pack_into("<Q", self.image.data, offset, value % 2**64)

    def _kernel(self, metadata: dict[str, Any]) -> Kernel:
        symbol = metadata[".symbol"]
        if symbol not in self.symbols:
            raise EmulatorError(f"the code object has no symbol '{symbol}'")
        at = self.symbols[symbol]
        lds, private, kernarg = self._unpack("<III", at)
        (entry,) = self._unpack("<q", at + 16)
        rsrc3, rsrc1, rsrc2, properties, preload = self._unpack("<IIIHH", at + 44)
        if preload:
            raise EmulatorError(f"kernel '{metadata['.name']}' preloads its arguments, which the emulator does not")
        if self.chip.width == 32 and not properties >> 10 & 1:
            raise EmulatorError(f"kernel '{metadata['.name']}' has waves of 64 lanes; the emulator's have 32 here")
        ids = (bool(rsrc2 >> 7 & 1), bool(rsrc2 >> 8 & 1), bool(rsrc2 >> 9 & 1))
        return Kernel(
            name=metadata[".name"],
            entry=at + entry,
            lds=lds,
            private=private,
            kernarg=max(kernarg, metadata[".kernarg_segment_size"]),
            user_sgprs=rsrc2 >> 1 & 31,
            properties=properties,
            group_ids=ids,
            vgprs=8 * ((rsrc1 & 63) + 1),
            first_agpr=4 * ((rsrc3 & 63) + 1) if self.chip.generation == 9 else 0,
            metadata=metadata,
        )
