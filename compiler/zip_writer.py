"""Write the zip files that runtime/zip_store.py reads: stored members, aligned so that they can be used in place.

Equal members give equal bytes. ZIP64 records are there only where sizes need them; any zip tool can list and extract
the members.
"""

from __future__ import annotations

import errno
import os
import struct
import tempfile
import zlib
from collections.abc import Iterable, Sequence
from typing import IO, TYPE_CHECKING

from ..runtime import zip_store as store

if TYPE_CHECKING:
    from pathlib import Path

_LIMIT = store.WIDE  # sizes and offsets from here on are in ZIP64 fields
_VERSION, _VERSION64 = 20, 45
_DATE = 0x21  # 1980-01-01, the earliest that zip knows: artifacts do not say when they were made
_PADDING = 0xD935  # extra field id that zipalign uses for padding: alignment, then zeros

Buffer = bytes | memoryview


def write_store(path: str | Path, members: Iterable[tuple[str, Sequence[Buffer]]]) -> None:
    """Write members, each a name and its content in pieces. The file appears whole or not at all; OSError names it."""
    folder, own_name = os.path.split(path)
    if os.path.exists(path) and not os.path.isfile(path):  # the rename would replace a device, such as /dev/null
        raise FileExistsError(errno.EEXIST, "this is no regular file", os.fspath(path))
    temporary = ""
    try:
        fd, temporary = tempfile.mkstemp(dir=folder or ".", prefix=f".{own_name}.")
        with open(fd, "wb") as file:
            _write(file, members)
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)  # mkstemp's files are private
        os.replace(temporary, path)
    except BaseException as error:
        if temporary:
            os.unlink(temporary)
        if isinstance(error, OSError):
            raise OSError(error.errno, error.strerror, os.fspath(path)) from None
        raise


def _write(file: IO[bytes], members: Iterable[tuple[str, Sequence[Buffer]]]) -> None:
    central: list[bytes] = []
    offset = 0
    for name, pieces in members:
        local, entry, size = _headers(name.encode(), pieces, offset)
        file.write(local)
        for piece in pieces:
            file.write(piece)
        central.append(entry)
        offset += len(local) + size
    file.writelines(central)
    file.write(_end(len(central), sum(map(len, central)), offset))


def _headers(name: bytes, pieces: Sequence[Buffer], offset: int) -> tuple[bytes, bytes, int]:
    """The local header, the central entry and the content's size of a member whose header begins at `offset`."""
    size, crc = 0, 0
    for piece in pieces:
        size += memoryview(piece).nbytes
        crc = zlib.crc32(piece, crc)
    large = size >= _LIMIT
    version = _VERSION64 if large or offset >= _LIMIT else _VERSION
    shown = store.WIDE if large else size
    extra = struct.pack("<HHQQ", 1, 16, size, size) if large else b""
    fixed = offset + store.LOCAL.size + len(name) + len(extra) + 6
    padding = -fixed % store.ALIGN
    local_extra = extra + struct.pack("<HHH", _PADDING, 2 + padding, store.ALIGN) + bytes(padding)
    common = (version, 0, 0, 0, _DATE, crc, shown, shown, len(name))
    local = store.LOCAL.pack(store.SIGNATURES[0], *common, len(local_extra)) + name + local_extra

    numbers = [size, size] if large else []
    if offset >= _LIMIT:
        numbers.append(offset)
    extra = struct.pack(f"<HH{len(numbers)}Q", 1, 8 * len(numbers), *numbers) if numbers else b""
    at = store.WIDE if offset >= _LIMIT else offset
    made_by = 3 << 8 | version  # Unix, so that the permissions below count
    mode = 0o100644 << 16
    central = store.CENTRAL.pack(store.SIGNATURES[1], made_by, *common, len(extra), 0, 0, 0, mode, at) + name + extra
    return local, central, size


def _end(count: int, size: int, offset: int) -> bytes:
    if count < 0xFFFF and offset < _LIMIT:
        return store.END.pack(store.SIGNATURES[2], 0, 0, count, count, size, offset, 0)
    wide = store.END64.pack(
        store.SIGNATURES[3], store.END64.size - 12, 3 << 8 | _VERSION64, _VERSION64, 0, 0, count, count, size, offset
    )
    locator = store.LOCATOR.pack(store.SIGNATURES[4], 0, offset + size, 1)
    return wide + locator + store.END.pack(store.SIGNATURES[2], 0, 0, 0xFFFF, 0xFFFF, store.WIDE, store.WIDE, 0)
