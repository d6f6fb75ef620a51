"""Zip files with stored (uncompressed) members aligned to 64 bytes, so that they can be mapped and used in place.

What compiler/zip_writer.py writes is accepted, all else refused: every field that is used is checked.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from .errors import ArtifactError

ALIGN = 64
WIDE = 0xFFFFFFFF  # in place of a size or offset that is in a ZIP64 field
LOCAL = struct.Struct("<IHHHHHIIIHH")
CENTRAL = struct.Struct("<IHHHHHHIIIHHHHHII")
END = struct.Struct("<IHHHHIIH")
END64 = struct.Struct("<IQHHIIQQQQ")
LOCATOR = struct.Struct("<IIQI")
SIGNATURES = (0x04034B50, 0x02014B50, 0x06054B50, 0x06064B50, 0x07064B50)


class Member(NamedTuple):
    """Where a member's bytes are in the file."""

    offset: int
    size: int
    crc: int


def read_store(data: memoryview, path: str) -> dict[str, Member]:
    """Find the members of a file written by compiler/zip_writer.py; ArtifactError says what is wrong with any other."""
    if len(data) < 4 or data[:4] != SIGNATURES[0].to_bytes(4, "little"):
        raise ArtifactError(f"{path} is not a .lamina file")
    try:
        return _read(data)
    except (struct.error, UnicodeDecodeError, _Damaged) as error:
        raise ArtifactError(f"{path} is truncated or damaged ({error}); get it again") from None


class _Damaged(Exception):
    pass


def _read(data: memoryview) -> dict[str, Member]:
    end = len(data) - END.size
    _need(end >= 0, "no end record")
    signature, _, _, _, count, size, start, comment = END.unpack_from(data, end)
    _need(signature == SIGNATURES[2] and comment == 0, "no end record")
    directory_end = end
    if count == 0xFFFF or start == WIDE:
        locator = end - LOCATOR.size
        _need(locator >= 0, "no ZIP64 locator")
        signature, _, directory_end, _ = LOCATOR.unpack_from(data, locator)
        _need(signature == SIGNATURES[4] and directory_end <= locator - END64.size, "no ZIP64 locator")
        signature, *_, count, size, start = END64.unpack_from(data, directory_end)
        _need(signature == SIGNATURES[3], "no ZIP64 end record")
    _need(start + size == directory_end, "directory and end record do not meet")
    members: dict[str, Member] = {}
    at = start
    for _ in range(count):
        _need(at + CENTRAL.size <= directory_end, "directory is cut off")
        fields = CENTRAL.unpack_from(data, at)
        signature, method, crc, packed, size = fields[0], fields[4], fields[7], fields[8], fields[9]
        name_size, extra_size, comment_size, header = fields[10], fields[11], fields[12], fields[16]
        _need(signature == SIGNATURES[1] and method == 0 and comment_size == 0 and packed == size, "directory entry")
        at += CENTRAL.size
        name = bytes(data[at : at + name_size])
        extra = data[at + name_size : at + name_size + extra_size]
        at += name_size + extra_size
        _need(at <= directory_end, "directory is cut off")
        if WIDE in (size, header):
            wide = [v for (v,) in struct.iter_unpack("<Q", extra[4:])]
            _need(len(wide) == 2 * (size == WIDE) + (header == WIDE), "ZIP64 sizes")
            header = wide[-1] if header == WIDE else header
            size = wide[0] if size == WIDE else size
        _need(name.decode() not in members, "a member occurs twice")
        members[name.decode()] = _locate(data, name, header, size, crc, start)
    _need(at == directory_end, "directory")
    return members


def _locate(data: memoryview, name: bytes, header: int, size: int, crc: int, start: int) -> Member:
    """The member's place, from its local header, which must agree with the directory."""
    _need(header + LOCAL.size <= start, "a member lies outside the file")
    fields = LOCAL.unpack_from(data, header)
    name_at = header + LOCAL.size
    offset = name_at + fields[9] + fields[10]
    _need(fields[0] == SIGNATURES[0] and bytes(data[name_at : name_at + fields[9]]) == name, "member header")
    _need(fields[6] == crc and offset % ALIGN == 0 and offset + size <= start, "member header")
    return Member(offset, size, crc)


def _need(condition: bool, what: str) -> None:
    if not condition:
        raise _Damaged(what)
