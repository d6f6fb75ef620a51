"""Load a shared object from memory.

On Linux the bytes go to an anonymous file (`memfd_create`) and the dynamic loader opens it through `/proc`; elsewhere,
and where that is forbidden, a temporary file serves. Symbols stay local to the image (RTLD_LOCAL).
"""

from __future__ import annotations

import ctypes
import itertools
import os
import sys

from .errors import LaminaRuntimeError

OTHER_IMAGES = {"darwin": "Mach-O", "win32": "PE"}  # systems that cannot load ours, and what they load
_count = itertools.count(1)


class Image:
    """A loaded shared object. It stays loaded until `close`, which callers may use when none of its code runs."""

    def __init__(self, data: bytes, name: str = "lamina"):
        self._library = None
        if sys.platform in OTHER_IMAGES:
            raise LaminaRuntimeError(
                f"the code of '{name}' is for Linux (ELF), and this system is {sys.platform}: "
                f"it needs {OTHER_IMAGES[sys.platform]} images, which Lamina does not make yet"
            )
        for opened in (_open_memory, _open_file):  # a system may forbid code from anonymous memory but not from files
            try:
                self._library = opened(data, name)
            except OSError as error:
                reason = error
            if self._library is not None:
                return
        raise LaminaRuntimeError(f"the system cannot load the code of '{name}': {reason}")

    def address(self, symbol: str) -> int:
        """The address of an exported symbol; LaminaRuntimeError if there is none."""
        try:
            return ctypes.cast(getattr(self._library, symbol), ctypes.c_void_p).value or 0
        except AttributeError:
            raise LaminaRuntimeError(f"the code has no symbol '{symbol}'") from None

    def close(self) -> None:
        """Unload; addresses got from here are invalid afterwards."""
        if self._library is not None:
            import _ctypes

            _ctypes.dlclose(self._library._handle)
            self._library = None


def _open_memory(data: bytes, name: str) -> ctypes.CDLL | None:
    if not hasattr(os, "memfd_create") or not os.path.isdir("/proc/self/fd"):
        return None
    fd = os.memfd_create(name)
    try:
        with open(fd, "wb", closefd=False) as file:
            file.write(data)
        # The loader takes a path that it has seen before for the library loaded then, even if the descriptor's number
        # now means another file. "//" and "/./" spell the same path in a way that is new each time.
        unique = "".join("./" if bit == "1" else "/" for bit in f"{next(_count):b}")
        return ctypes.CDLL(f"/proc/self/fd/{unique}{fd}")
    finally:
        os.close(fd)


def _open_file(data: bytes, name: str) -> ctypes.CDLL:
    import tempfile  # it imports much, and only systems without anonymous files need it

    # mkstemp names are unique and private to the user; the mapping outlives the name
    fd, path = tempfile.mkstemp(suffix=".so")
    try:
        with open(fd, "wb") as file:
            file.write(data)
        return ctypes.CDLL(path)
    finally:
        os.unlink(path)
