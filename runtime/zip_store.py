"""Zip files with stored (uncompressed) members aligned to 64 bytes, so that they can be mapped and used in place.

Written byte for byte reproducibly, with ZIP64 records only where sizes need them; any zip tool can list and extract
them. The reader accepts what the writer writes and refuses everything else: it checks every field that it uses
against the file's length.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from .errors import ArtifactError

if TYPE_CHECKING:
    from pathlib import Path

ALIGN = 64
_WIDE = 0xFFFFFFFF  # in place of a size or offset that is in a ZIP64 field
_LIMIT = _WIDE  # from here on, they are
_LOCAL = struct.Struct("<IHHHHHIIIHH")
_CENTRAL = struct.Struct("<IHHHHHHIIIHHHHHII")
_END = struct.Struct("<IHHHHIIH")
_END64 = struct.Struct("<IQHHIIQQQQ")
_LOCATOR = struct.Struct("<IIQI")
_SIGNATURES = (0x04034B50, 0x02014B50, 0x06054B50, 0x06064B50, 0x07064B50)
_VERSION, _VERSION64 = 20, 45
_DATE = 0x21  # 1980-01-01, the earliest that zip knows: artifacts do not say when they were made
_PADDING = 0xD935  # extra field id that zipalign uses for padding: alignment, then zeros

Buffer = bytes | memoryview


class Member(NamedTuple):
    """Where a member's bytes are in the file."""

    offset: int
    size: int
    crc: int


def write_store(path: str | Path, members: Iterable[tuple[str, Sequence[Buffer]]]) -> None:
    """Write members, each a name and its content in pieces. The file appears whole or not at all."""
    import tempfile  # it imports much, and only writing needs it

    folder, own_name = os.path.split(path)
    fd, temporary = tempfile.mkstemp(dir=folder or ".", prefix=f".{own_name}.")
    try:
        with open(fd, "wb") as file:
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
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)  # mkstemp's files are private
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _headers(name: bytes, pieces: Sequence[Buffer], offset: int) -> tuple[bytes, bytes, int]:
    """The local header, the central entry and the content's size of a member whose header begins at `offset`."""
    size, crc = 0, 0
    for piece in pieces:
        size += memoryview(piece).nbytes
        crc = zlib.crc32(piece, crc)
    large = size >= _LIMIT
    version = _VERSION64 if large or offset >= _LIMIT else _VERSION
    shown = _WIDE if large else size
    extra = struct.pack("<HHQQ", 1, 16, size, size) if large else b""
    fixed = offset + _LOCAL.size + len(name) + len(extra) + 6
    padding = -fixed % ALIGN
    local_extra = extra + struct.pack("<HHH", _PADDING, 2 + padding, ALIGN) + bytes(padding)
    common = (version, 0, 0, 0, _DATE, crc, shown, shown, len(name))
    local = _LOCAL.pack(_SIGNATURES[0], *common, len(local_extra)) + name + local_extra

    numbers = [size, size] if large else []
    if offset >= _LIMIT:
        numbers.append(offset)
    extra = struct.pack(f"<HH{len(numbers)}Q", 1, 8 * len(numbers), *numbers) if numbers else b""
    at = _WIDE if offset >= _LIMIT else offset
    made_by = 3 << 8 | version  # Unix, so that the permissions below count
    mode = 0o100644 << 16
    central = _CENTRAL.pack(_SIGNATURES[1], made_by, *common, len(extra), 0, 0, 0, mode, at) + name + extra
    return local, central, size


def _end(count: int, size: int, offset: int) -> bytes:
    if count < 0xFFFF and offset < _LIMIT:
        return _END.pack(_SIGNATURES[2], 0, 0, count, count, size, offset, 0)
    wide = _END64.pack(
        _SIGNATURES[3], _END64.size - 12, 3 << 8 | _VERSION64, _VERSION64, 0, 0, count, count, size, offset
    )
    locator = _LOCATOR.pack(_SIGNATURES[4], 0, offset + size, 1)
    return wide + locator + _END.pack(_SIGNATURES[2], 0, 0, 0xFFFF, 0xFFFF, _WIDE, _WIDE, 0)


def read_store(data: memoryview, path: str) -> dict[str, Member]:
    """Find the members of a file written by `write_store`; ArtifactError says what is wrong with any other."""
    if len(data) < 4 or data[:4] != _SIGNATURES[0].to_bytes(4, "little"):
        raise ArtifactError(f"{path} is not a .lamina file")
    try:
        return _read(data)
    except (struct.error, UnicodeDecodeError, _Damaged) as error:
        raise ArtifactError(f"{path} is truncated or damaged ({error}); get it again") from None


class _Damaged(Exception):
    pass


def _read(data: memoryview) -> dict[str, Member]:
    end = len(data) - _END.size
    _need(end >= 0, "no end record")
    signature, _, _, _, count, size, start, comment = _END.unpack_from(data, end)
    _need(signature == _SIGNATURES[2] and comment == 0, "no end record")
    directory_end = end
    if count == 0xFFFF or start == _WIDE:
        locator = end - _LOCATOR.size
        _need(locator >= 0, "no ZIP64 locator")
        signature, _, directory_end, _ = _LOCATOR.unpack_from(data, locator)
        _need(signature == _SIGNATURES[4] and directory_end <= locator - _END64.size, "no ZIP64 locator")
        signature, *_, count, size, start = _END64.unpack_from(data, directory_end)
        _need(signature == _SIGNATURES[3], "no ZIP64 end record")
    _need(start + size == directory_end, "directory and end record do not meet")
    members: dict[str, Member] = {}
    at = start
    for _ in range(count):
        _need(at + _CENTRAL.size <= directory_end, "directory is cut off")
        fields = _CENTRAL.unpack_from(data, at)
        signature, method, crc, packed, size = fields[0], fields[4], fields[7], fields[8], fields[9]
        name_size, extra_size, comment_size, header = fields[10], fields[11], fields[12], fields[16]
        _need(signature == _SIGNATURES[1] and method == 0 and comment_size == 0 and packed == size, "directory entry")
        at += _CENTRAL.size
        name = bytes(data[at : at + name_size])
        extra = data[at + name_size : at + name_size + extra_size]
        at += name_size + extra_size
        _need(at <= directory_end, "directory is cut off")
        if _WIDE in (size, header):
            wide = [v for (v,) in struct.iter_unpack("<Q", extra[4:])]
            _need(len(wide) == 2 * (size == _WIDE) + (header == _WIDE), "ZIP64 sizes")
            header = wide[-1] if header == _WIDE else header
            size = wide[0] if size == _WIDE else size
        _need(name.decode() not in members, "a member occurs twice")
        members[name.decode()] = _locate(data, name, header, size, crc, start)
    _need(at == directory_end, "directory")
    return members


def _locate(data: memoryview, name: bytes, header: int, size: int, crc: int, start: int) -> Member:
    """The member's place, from its local header, which must agree with the directory."""
    _need(header + _LOCAL.size <= start, "a member lies outside the file")
    fields = _LOCAL.unpack_from(data, header)
    name_at = header + _LOCAL.size
    offset = name_at + fields[9] + fields[10]
    _need(fields[0] == _SIGNATURES[0] and bytes(data[name_at : name_at + fields[9]]) == name, "member header")
    _need(fields[6] == crc and offset % ALIGN == 0 and offset + size <= start, "member header")
    return Member(offset, size, crc)


def _need(condition: bool, what: str) -> None:
    if not condition:
        raise _Damaged(what)
