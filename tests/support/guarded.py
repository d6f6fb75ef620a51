"""Arrays that end where memory ends: a read or write past the end is a crash, not a wrong number."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np

_PAGE = mmap.PAGESIZE
_libc = ctypes.CDLL(None, use_errno=True)
_keep: list[mmap.mmap] = []


def guarded(array: np.ndarray) -> np.ndarray:
    """A copy of `array` whose last byte lies just before an inaccessible page."""
    pages = -(-array.nbytes // _PAGE) + 1
    memory = mmap.mmap(-1, pages * _PAGE)
    _keep.append(memory)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    if _libc.mprotect(ctypes.c_void_p(address + (pages - 1) * _PAGE), _PAGE, 0):
        raise OSError(ctypes.get_errno(), "mprotect")
    start = (pages - 1) * _PAGE - array.nbytes
    copy = np.frombuffer(memory, array.dtype, array.size, start).reshape(array.shape)
    copy[...] = array
    return copy
