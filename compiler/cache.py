"""The two caches on disk, both content-addressed: graph record → program, and kernel IR → object.

An entry is a file named by its key, a SHA-256 of all that decides its content. It starts with the SHA-256 of the rest,
so damage of any kind reads as a miss. Entries are written to a temporary name and renamed: readers see all or nothing,
and two processes that compile the same thing do no harm. The directory belongs to the user alone (0700), since an
entry is code that will run. It is bounded: the entries used longest ago go first.

    lamina/programs/3f/3fa9…        lamina/kernels/07/07c1…
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import struct
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..runtime.gpu.cubin_cache import cache_root
from .messages import Message

MAGIC = b"LAMINA01"
DEFAULT_LIMIT = 2 << 30  # bytes; LAMINA_CACHE_SIZE_MB changes it
SPARE = 0.9  # eviction goes down to this part of the limit, so that it does not happen at each write
RECOUNT = 86400.0  # seconds after which all entries are counted again: 100,000 take a second or more
_TOTAL = "total"  # the file in the root with the bytes of all entries as known and the time when they were counted


class CacheInfo(NamedTuple):
    """What `lamina cache` shows."""

    directory: str
    entries: int
    bytes: int
    limit: int


def key(*parts: str | bytes) -> str:
    """The key of an entry that is decided by `parts` (each is hashed with its length)."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(struct.pack("<Q", len(data)))
        digest.update(data)
    return digest.hexdigest()


class Cache:
    """Entries of one kind (a folder name such as "kernels"): a header of plain data and byte strings."""

    def __init__(self, kind: str, root: Path | None = None, limit: int | None = None):
        self.root = root or cache_root()
        self.folder = self.root / kind
        self.limit = _limit() if limit is None else limit

    def get(self, name: str) -> Message | None:
        """The entry called `name`, or None if there is none or it is damaged (then it is removed)."""
        path = self._path(name)
        try:
            data = path.read_bytes()
        except OSError:
            return None
        content = _unpack(data)
        try:
            if content is None:
                path.unlink()
            else:
                os.utime(path)  # it was used now
        except OSError:
            pass
        return content

    def put(self, name: str, header: dict[str, Any], blobs: Sequence[bytes] = ()) -> None:
        """Write an entry; a cache that cannot be written is no error, only no cache."""
        data = _pack(header, blobs)
        path = self._path(name)
        try:
            _private(self.root)
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(data)
                os.replace(temporary, path)
            except OSError:
                os.unlink(temporary)
                raise
        except OSError:
            return
        self._account(len(data))

    def _path(self, name: str) -> Path:
        return self.folder / name[:2] / name

    def _account(self, size: int) -> None:
        """Count an entry of `size` bytes; what several processes write at once may be counted once."""
        path, now = self.root / _TOTAL, time.time()
        try:
            total, counted = map(float, path.read_text().split())
            total += size
        except (OSError, ValueError):
            total, counted = 0.0, 0.0
        if not 0 <= now - counted < RECOUNT:
            total, counted = sum(s for _, s, _ in entries(self.root)), now
        if total > self.limit:
            total, counted = evict(self.root, int(self.limit * SPARE)), now
        with contextlib.suppress(OSError):
            path.write_text(f"{total} {counted}")


def entries(root: Path) -> Iterator[tuple[Path, int, float]]:
    """Every entry below `root` with its size and the time of its last use."""
    for path in root.glob("*/*/*"):
        try:
            stat = path.stat()
        except OSError:
            continue  # somebody else removed it
        yield path, stat.st_size, stat.st_mtime


def evict(root: Path, limit: int) -> int:
    """Remove the entries used longest ago until at most `limit` bytes are left; returns what is left."""
    found = sorted(entries(root), key=lambda e: e[2])
    total = sum(size for _, size, _ in found)
    for path, size, _ in found:
        if total <= limit:
            break
        path.unlink(missing_ok=True)
        total -= size
    return total


def clear(root: Path | None = None) -> int:
    """Remove every entry and return how many there were; the reproducers of failures go too."""
    where = root or cache_root()
    paths = [path for path, _, _ in entries(where)]
    for path in (*paths, *where.glob("reproducers/*"), where / _TOTAL):
        path.unlink(missing_ok=True)
    return len(paths)


def info(root: Path | None = None) -> CacheInfo:
    """Where the cache is and what is in it."""
    where = root or cache_root()
    sizes = [size for _, size, _ in entries(where)]
    return CacheInfo(str(where), len(sizes), sum(sizes), _limit())


def _private(directory: Path) -> None:
    """Make `directory` for the user alone; refuse (OSError) one that others can write or that others own."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    stat = directory.stat()
    if hasattr(os, "getuid") and (stat.st_uid != os.getuid() or stat.st_mode & 0o022):
        raise PermissionError(f"cache directory {directory} can be written by others; it is not used")


def _limit() -> int:
    megabytes = os.environ.get("LAMINA_CACHE_SIZE_MB", "")
    if megabytes.isdecimal():
        return int(megabytes) << 20
    if megabytes:
        default = DEFAULT_LIMIT >> 20
        text = (
            f"LAMINA_CACHE_SIZE_MB is '{megabytes}' and not used; give a whole number of megabytes (default {default})"
        )
        warnings.warn(text, stacklevel=2)
    return DEFAULT_LIMIT


def _pack(header: dict[str, Any], blobs: Sequence[bytes]) -> bytes:
    text = json.dumps(header).encode()
    sizes = [len(text), *map(len, blobs)]
    body = b"".join([struct.pack(f"<I{len(sizes)}Q", len(sizes), *sizes), text, *blobs])
    return MAGIC + hashlib.sha256(body).digest() + body


def _unpack(data: bytes) -> Message | None:
    body = memoryview(data)[40:]
    if data[:8] != MAGIC or hashlib.sha256(body).digest() != data[8:40]:
        return None
    (count,) = struct.unpack_from("<I", body)
    sizes = struct.unpack_from(f"<{count}Q", body, 4)
    start, parts = 4 + 8 * count, []
    for size in sizes:
        parts.append(bytes(body[start : start + size]))
        start += size
    return Message(json.loads(parts[0]), tuple(parts[1:]))
