"""Load a shared object from memory.

We map it (elf_image.py), or, where a process may not make its memory executable (SELinux without `execmem`, systemd's
MemoryDenyWriteExecute), Linux's loader opens a temporary file. No symbol is seen by others.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

from .errors import LaminaRuntimeError


class Image:
    """A loaded shared object; its addresses are valid as long as it lives.

    No finalizer unmaps it: those of other garbage may still call its code. At exit the frames of threads that run it hold it.
    """

    def __init__(self, data: bytes, name: str = "lamina"):
        if sys.platform == "win32":
            raise LaminaRuntimeError(f"the code of '{name}' is for Linux and macOS; Lamina loads none on Windows yet")
        from .elf_image import map_image

        self._exports, self._memory, self._library = dict[str, int](), None, None
        try:
            self._exports, self._memory = map_image(data)
        except ValueError as error:
            raise LaminaRuntimeError(f"the system cannot load the code of '{name}': {error}") from None
        except OSError as error:
            self._library = _open_file(data, name, error)

    def address(self, symbol: str) -> int:
        """The address of an exported symbol; LaminaRuntimeError if there is none."""
        found = self._exports.get(symbol) or find_symbol(self._library, symbol)
        if not found:
            raise LaminaRuntimeError(f"the code has no symbol '{symbol}'")
        return found


def symbol_address(library: Any, name: str) -> int:
    """The address of what `library` exports by a name; AttributeError if there is none."""
    return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0


def find_symbol(library: Any, name: str) -> int:
    """The same; 0 if there is none."""
    return symbol_address(library, name) if hasattr(library, name) else 0


def _open_file(data: bytes, name: str, denied: OSError) -> ctypes.CDLL:
    import tempfile  # it imports much, and few processes need it

    try:
        with tempfile.NamedTemporaryFile(suffix=".so") as file:  # the mapping outlives the name
            file.write(data)
            file.flush()
            return ctypes.CDLL(file.name)
    except OSError as error:
        raise LaminaRuntimeError(
            f"the system cannot load the code of '{name}': {denied.strerror}, and not from a file: {error}"
        ) from None
