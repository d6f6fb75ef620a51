"""Machine code that NVIDIA's driver made of PTX, kept on disk: where there is no `ptxas`, a kernel is compiled once.

A file for each kernel lies in the cache directory, named by a hash of the PTX, the device's capability and the driver's
version. Where one cannot be read, or others could have written it, the driver compiles again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .cuda import Device


def cache_root() -> Path:
    """LAMINA_CACHE_DIR, or `lamina` below the user's cache directory (XDG_CACHE_HOME, ~/.cache)."""
    if given := os.environ.get("LAMINA_CACHE_DIR"):
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lamina"


def get(ptx: bytes, device: Device) -> bytes | None:
    """The cubin of `ptx` for `device`, if it was kept."""
    with contextlib.suppress(OSError, RuntimeError):  # RuntimeError: there is no home
        path = _path(ptx, device)
        found = path.parent.stat()
        if found.st_uid == os.getuid() and not found.st_mode & 0o022:
            return path.read_bytes()
    return None


def put(ptx: bytes, device: Device, cubin: bytes) -> None:
    """Keep a cubin: all of it or nothing, also when several processes do."""
    with contextlib.suppress(OSError, RuntimeError):
        path = _path(ptx, device)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, name = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(cubin)
        os.replace(name, path)


def _path(ptx: bytes, device: Device) -> Path:
    digest = hashlib.sha256(repr((device.capability, device.driver_version)).encode() + ptx).hexdigest()
    return cache_root() / "cubins" / digest[:2] / digest
