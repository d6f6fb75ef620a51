"""Native entries: builtins of CPython whose code is ours, and the table of 8-byte words that tells each what to do.

A builtin of the METH_FASTCALL form is `PyObject *f(PyObject *self, PyObject **args, Py_ssize_t n)`. Its `self` is a bytes
object whose content is the address of the table: addresses of functions, what the arguments must be, memoised sizes.
A table knows one call, or calls of all sizes; in a `Chain` each calls the next where its checks fail, and at the end Python:

    call ─▶ table 0 ─ other sizes ─▶ table 1 ─ … ─▶ slow(*args), which may `fill` a table for the next such call
                 └─ the program fails ─▶ failed(status), which raises

All programs of a process share one arena and the word `busy` beside it: a call that finds it set takes the slow path,
which has an arena for each thread. Words are read and written with the GIL held, except by a program that runs.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from .arena import allocate
from .array_table import BYTES_DATA
from .loader import symbol_address

_METH_FASTCALL = 0x80
_METHOD = struct.Struct("@PPiP")  # PyMethodDef: name, function, flags, documentation
_NAME = ctypes.create_string_buffer(b"lamina_entry")
# Calls that a chain remembers. A check that fails costs some 20 ns, memoising a call some 30 µs.
LIMIT = 16
# A program that touches less than this is done in a few microseconds; giving up the GIL would cost 0.1 to 0.2 of them.
TINY = 32 << 10
# functions of CPython that entries of artifacts call, by the words of their tables
PYTHON = {
    "vectorcall": "PyObject_Vectorcall",
    "long_value": "PyLong_AsLongLongAndOverflow",
    "clear_error": "PyErr_Clear",
    "save_thread": "PyEval_SaveThread",
    "restore_thread": "PyEval_RestoreThread",
}
# and those that raise a program's failure
RAISING = {"vectorcall": "PyObject_Vectorcall", "new_long": "PyLong_FromLongLong", "decrement": "Py_DecRef"}


def has_known_layout() -> bool:
    """Is this CPython with a GIL, whose objects and bytes are laid out as native code expects?"""
    build, content = getattr(sys, "_is_gil_enabled", lambda: True)(), b"lamina12"
    plain = sys.implementation.name == "cpython" and build and object.__basicsize__ == 16
    return plain and ctypes.string_at(id(content) + BYTES_DATA, len(content)) == content


class _Anchor(bytes):
    """The `self` of a builtin. Its attributes keep alive what native code reads.

    Its content is the table's address and the builtin's PyMethodDef, which CPython reads after a collection has cleared
    attributes.
    """

    table: Table
    chain: Any


class Table:
    """The words of one call, by name; `valid` and `slow` must be among the names. `kept` lives as long as the words."""

    def __init__(self, slot: Mapping[str, int], words: Mapping[str, int], failed: Callable[[int], Any] | None = None):
        self._slot = slot
        self.slots = (ctypes.c_int64 * len(slot))()
        self.shared = SHARED  # at exit modules are cleared, and threads may be running programs
        self.kept: Any = None
        self.slow: Any = None  # what the word `slow` points to
        self.failed = failed  # raises the error of a status
        self.set(**words, **({} if failed is None else {"failed": id(failed)}))

    @property
    def busy(self) -> bool:
        """True while another thread runs what this table alone describes."""
        return False

    def set(self, **words: int) -> None:
        """Write words."""
        for name, value in words.items():
            self.slots[self._slot[name]] = value


def builtin(entry: int, table: Table, slow: Callable[..., Any], chain: Any = None) -> Callable[..., Any]:
    """The builtin of the code at `entry`, which reads `table` and calls `slow` where it cannot; it keeps these and `chain`."""
    content = struct.pack("@Q", ctypes.addressof(table.slots))
    anchor = _Anchor(content + _METHOD.pack(ctypes.addressof(_NAME), entry, _METH_FASTCALL, 0))
    anchor.table, anchor.chain = table, chain
    table.slow = slow
    table.set(slow=id(slow))
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]
    return make(id(anchor) + BYTES_DATA + len(content), anchor, None)


class Chain:
    """Tables behind one builtin, `call`; `slow` is called, and may `fill` a table, where none fits.

    The code at `entry` must live as long as the tables that `make` makes, or as `slow`.
    """

    def __init__(self, entry: int, make: Callable[[], Table], slow: Callable[..., Any]):
        self._entry, self._make, self._slow = entry, make, slow
        self.tables: list[Table] = []
        self._builtins: list[Any] = []
        self._keys: list[Hashable] = []
        self._seen: set[Hashable] = set()
        self._turn = 0
        self._append()
        self._keys[0] = object()  # no call yet

    @property
    def call(self) -> Callable[..., Any]:
        """The builtin; it owns the chain."""
        return self._builtins[0]

    def fill(self, key: Hashable, memoise: Callable[[Any], None]) -> None:
        """Let `memoise` fill a table for calls of this key, if that is worth it and no other thread is filling one.

        A second one would free what the first one's words point to, when native code may already read them.
        """
        if not (filling := SHARED.filling).acquire(blocking=False):
            return
        try:
            table = self._place(key)
            if table is not None:
                memoise(table)
        finally:
            filling.release()

    def _place(self, key: Hashable) -> Table | None:
        """A table for calls of this key, invalid until the caller sets `valid`; None: this call is not worth one now.

        That is when the key is new (sizes that grow with every call would only evict others), or while a program runs.
        """
        if key not in self._seen:
            if len(self._seen) >= 64 * LIMIT:
                self._seen.clear()
            self._seen.add(key)
            return None
        if key in self._keys:
            number = self._keys.index(key)
        elif len(self.tables) == 1 and not self.tables[0].kept:
            number = 0
        elif len(self.tables) < LIMIT:
            number = self._append()
        else:
            number = self._turn = (self._turn + 1) % LIMIT
        table = self.tables[number]
        table.set(valid=0)
        # asked after the table is invalid: no call with it is running, and none can begin
        if SHARED.busy or table.busy:
            return None
        self._keys[number] = key
        return table

    def forget(self) -> None:
        """Let the next call of every kind take the slow path."""
        for table in self.tables:
            table.set(valid=0)

    def _append(self) -> int:
        table = self._make()
        made = builtin(self._entry, table, self._slow, self)
        if self.tables:
            self.tables[-1].slow = made
            self.tables[-1].set(slow=id(made))
        self._builtins.append(made)
        self.tables.append(table)
        self._keys.append(None)
        return len(self.tables) - 1


class _Shared:
    """What all tables share: whether some thread is running a program, the arena for it, and who fills a table."""

    def __init__(self) -> None:
        self.cells = (ctypes.c_int64 * 2)()  # busy, the arena
        self._block: Any = None
        self._old: list[Any] = []
        self.size = 0  # bytes of the arena
        self.filling = threading.Lock()

    @property
    def busy(self) -> bool:
        return bool(self.cells[0])

    def reserve(self, size: int) -> None:
        """Make the arena at least `size` bytes."""
        if size > self.size:
            self._old.append(self._block)
            self._block, self.cells[1] = allocate(size)
            self.size = size
        if not self.busy:  # else a program may be using the old one
            self._old.clear()

    def forget(self) -> None:
        """In a forked child: no thread of the parent's runs here."""
        self.cells[0], self.filling = 0, threading.Lock()


SHARED = _Shared()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=SHARED.forget)


def addresses(library: Any, names: Mapping[str, str]) -> dict[str, int]:
    """Word -> address of an exported function of `library`; AttributeError if one is missing."""
    return {word: symbol_address(library, name) for word, name in names.items()}


def rows(words: Sequence[int], row: int) -> ctypes.Array:
    """Table rows in memory, with room for one more so that there is always something to point to."""
    return (ctypes.c_int64 * (len(words) + row))(*words)
