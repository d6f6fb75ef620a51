"""Map an ELF image: what the system's loader does, for our images, which ask little of one (targets/linker).

There are segments, at addresses below a base that we choose; functions of the system's libraries, by name; relocations
of two kinds; and no constructors, no thread-local data:

    *(base + place) = base + addend              relative
    *(base + place) = address of a function      in the global offset table

Memory is writable while it is filled and then what each segment asks for, never writable and executable at once. So macOS
loads them too, without MAP_JIT, which is for pages that change while they run, but must be told to flush instruction caches.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import struct
from typing import Any

from .loader import find_symbol
from .machine import host_arch

_PROGRAM_HEADER = struct.Struct("<IIQQQQQQ")  # type, flags, offset, address, (physical), bytes in file, bytes, align
_SYMBOL = struct.Struct("<IBBHQQ")  # name, type and binding, visibility, section (0: imported), value, size
_RELOCATION = struct.Struct("<QQq")  # place, symbol << 32 | type, addend
_LOAD, _DYNAMIC = 1, 2
_NEEDED, _HASH, _STRINGS, _SYMBOLS, _RELOCATIONS, _RELOCATIONS_SIZE = 1, 4, 5, 6, 7, 8  # tags of the dynamic section
_EXECUTE, _WRITE = 1, 2  # flags of a segment
# architecture → e_machine, the type of relative relocations, those of relocations to symbols
_MACHINES = {"x86_64": (62, 8, (1, 6)), "aarch64": (183, 1027, (257, 1025)), "riscv64": (243, 3, (2,))}


def map_image(data: bytes) -> tuple[dict[str, int], mmap.mmap]:
    """Map an image: the addresses of what it exports, and its memory, which must live as long as they are used.

    ValueError: it is no image for this machine; OSError: it is not allowed.
    """
    try:
        number, relative, to_symbol = _MACHINES.get(host_arch(), (0, 0, ()))
        if data[:6] != b"\x7fELF\x02\x01" or data[18:20] != struct.pack("<H", number):
            raise ValueError(f"it is no ELF image for {host_arch()}")
        (start,), (count,) = struct.unpack_from("<Q", data, 32), struct.unpack_from("<H", data, 56)
        headers = [_PROGRAM_HEADER.unpack_from(data, start + i * _PROGRAM_HEADER.size) for i in range(count)]
        loads = [h for h in headers if h[0] == _LOAD]
        end = max(address + size for _, _, _, address, _, _, size, _ in loads)
        memory = mmap.mmap(-1, end, mmap.MAP_PRIVATE | mmap.MAP_ANON, mmap.PROT_READ | mmap.PROT_WRITE)
        base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        for _, _, offset, address, _, size, _, _ in loads:
            memory[address : address + size] = data[offset : offset + size]
        *_, at, _, size, _, _ = [h for h in headers if h[0] == _DYNAMIC][0]
        entries = list(struct.iter_unpack("<QQ", memory[at : at + size]))
        tags = dict(entries)
        names, exports = _symbols(memory, tags, base)
        libraries = tuple(_text(memory, tags[_STRINGS] + v) for tag, v in entries if tag == _NEEDED)
        at = tags[_RELOCATIONS]
        for place, info, addend in _RELOCATION.iter_unpack(memory[at : at + tags[_RELOCATIONS_SIZE]]):
            type, name = info & 0xFFFFFFFF, names[info >> 32]
            if type not in (relative, *to_symbol):
                raise ValueError(f"it has a relocation of type {type}")
            value = base if type == relative else exports.get(name) or _function(name, libraries)
            struct.pack_into("<Q", memory, place, value + addend)
    except (struct.error, LookupError, ArithmeticError) as error:
        raise ValueError(f"it is damaged: {error}") from None
    for load in loads:
        _protect(load, base)
    return exports, memory


def _text(memory: mmap.mmap, at: int) -> str:
    return memory[at : memory.find(b"\0", at)].decode()


def _symbols(memory: mmap.mmap, tags: dict[int, int], base: int) -> tuple[list[str], dict[str, int]]:
    """The names of all dynamic symbols, by number, and the addresses of those that are defined."""
    (count,) = struct.unpack_from("<I", memory, tags[_HASH] + 4)
    names: list[str] = []
    exports: dict[str, int] = {}
    for number in range(count):
        at, _, _, section, value, _ = _SYMBOL.unpack_from(memory, tags[_SYMBOLS] + number * _SYMBOL.size)
        names.append(_text(memory, tags[_STRINGS] + at))
        if section:
            exports[names[-1]] = base + value
    return names, exports


@functools.cache
def _library(name: str | None) -> Any:
    """A library; None: all that the process has loaded, which on macOS has what ours by name have."""
    try:
        return ctypes.CDLL(name, use_errno=True)
    except OSError:
        return None


@functools.cache
def _function(name: str, libraries: tuple[str, ...]) -> int:
    for library in map(_library, (None, *libraries)):
        for spelled in (name, f"__{name}"):  # `sincos` is `__sincos` on macOS
            if found := find_symbol(library, spelled):
                return found
    raise ValueError(f"this system has no function '{name}'")


def _protect(load: tuple[int, ...], base: int) -> None:
    """Give the pages of a segment what it asks for."""
    _, flags, _, address, _, _, size, _ = load
    start = address // mmap.PAGESIZE * mmap.PAGESIZE
    where, length = ctypes.c_void_p(base + start), ctypes.c_size_t(address + size - start)
    rights = mmap.PROT_READ | (mmap.PROT_WRITE if flags & _WRITE else 0) | (mmap.PROT_EXEC if flags & _EXECUTE else 0)
    system = _library(None)
    if flags & _EXECUTE and hasattr(system, "sys_icache_invalidate"):
        system.sys_icache_invalidate(where, length)
    if system.mprotect(where, length, rights):
        raise OSError(ctypes.get_errno(), "this process may not make memory executable")
