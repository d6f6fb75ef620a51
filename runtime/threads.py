"""Threads for kernels: which pool runs parallel regions, and the `ctx` array that says so (docs/contracts.md §7).

The first of these that is there:

    torch    torch is imported: its own pool, through `torch_parallel_for`; a second pool beside it would fight it
    gomp     libgomp or libomp, if the process has loaded it
    pool     pthreads of our own, in a third of OpenMP's time

In a forked child, torch's and OpenMP's threads are gone. Under torch a region runs serially there (torch's own ops must,
too); otherwise on our own pool, started again.
`LAMINA_NUM_THREADS` and `LAMINA_THREADS` (README) say otherwise.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from .errors import LaminaRuntimeError
from .loader import Image, find_symbol

ABI = 1  # version of the kernel ABI and of ctx
_VERSION, _PARALLEL, _THREADS, _USER, _HOOK = range(5)
_SLOTS = 8

_lock = threading.RLock()
_forked = False  # this process is a child of one that had loaded us
_provider: Provider | None = None
_with_torch = False  # torch was there when it was chosen
_pool = 0  # address of our own pool, shared by all images
_EPOCH = ctypes.c_int64(0)  # counts what makes a context stale; native code reads it


class Provider(NamedTuple):
    """A source of threads: its `lamina_parallel_<name>` in the image, the pointer in `ctx[3]`, the thread count.

    `counter` is the address of `int32_t counter(uint32_t *count)` where calls may change the count; -1: native code cannot know.
    """

    name: str
    user: Callable[[Image, int], int]
    count: Callable[[], int]
    counter: int = 0


def _cpus() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def _wanted() -> int:
    """The number of threads that the environment asks for, or 0."""
    text = os.environ.get("LAMINA_NUM_THREADS", "")
    if text and (not text.isdigit() or int(text) < 1):
        raise LaminaRuntimeError(f"LAMINA_NUM_THREADS is '{text}'; give a number of threads, 1 or more")
    return int(text or 0)


def _always(value: int) -> Callable[..., int]:
    return lambda *_: value


def _torch() -> Provider | None:
    torch: Any = sys.modules.get("torch")
    if not hasattr(torch, "get_num_threads"):
        return None
    folder = os.path.join(os.path.dirname(torch.__file__), "lib")
    for file in ("libtorch_cpu.so", "libtorch_cpu.dylib", "torch_cpu.dll"):
        try:
            library = ctypes.CDLL(os.path.join(folder, file))
        except OSError:
            continue
        fixed = _wanted()
        count = _always(fixed) if fixed else torch.get_num_threads
        counter = 0 if fixed else find_symbol(library, "torch_get_num_threads") or -1
        # torch before 2.10 lacks the first; its libgomp has the second
        for name, symbol in (("torch", "torch_parallel_for"), ("gomp", "GOMP_parallel")):
            address = find_symbol(library, symbol)
            if address:
                return Provider(name, _always(address), count, counter)
    return None


def _gomp(loaded: bool = False) -> Provider | None:
    mode = os.RTLD_NOLOAD if loaded else 0
    for name in ("libgomp.so.1", "libomp.so.5", "libomp.so", "libomp.dylib"):
        try:
            library = ctypes.CDLL(name, mode)
        except OSError:
            continue
        address = find_symbol(library, "GOMP_parallel")
        if address:
            return Provider("gomp", _always(address), _always(_wanted() or library.omp_get_max_threads()))
    return None


def _own() -> Provider:
    return Provider("pool", _start_pool, _always(_wanted() or _cpus()))


def _serial() -> Provider:
    return Provider("serial", _always(0), _always(1))


_BY_NAME: dict[str, Callable[[], Provider | None]] = {"torch": _torch, "gomp": _gomp, "pool": _own, "serial": _serial}


def provider() -> Provider:
    """The provider for a call made now: the one chosen at first, until torch is imported or this process forks."""
    global _provider, _with_torch
    with_torch = hasattr(sys.modules.get("torch"), "get_num_threads")  # false while torch is being imported
    if _provider is None or with_torch != _with_torch:
        _provider, _with_torch = _choose(), with_torch
    return _provider


def _choose() -> Provider:
    name = os.environ.get("LAMINA_THREADS", "")
    if name and name not in _BY_NAME:
        raise LaminaRuntimeError(f"LAMINA_THREADS is '{name}'; choose one of {', '.join(_BY_NAME)}")
    found = _BY_NAME[name]() if name else _torch() or _gomp(loaded=True) or _own()
    if found is None:
        raise LaminaRuntimeError(f"LAMINA_THREADS is '{name}', which this process does not have; unset it")
    if not _forked or found.name in ("pool", "serial"):
        return found
    return _serial() if "torch" in sys.modules else _own()


def _start_pool(image: Image, threads: int) -> int:
    global _pool
    with _lock:
        if not _pool:
            create = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int64)(image.address("lamina_pool_create_2"))
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(image))  # the pool's threads run its code, for ever
            _pool = create(threads - 1) or 0
        return _pool


def _after_fork() -> None:
    global _forked, _provider, _pool, _lock
    _forked, _provider, _pool, _lock = True, None, 0, threading.RLock()
    _EPOCH.value += 1


def epoch() -> int:
    """What changes when contexts chosen so far are stale: after a fork, or when a profiler came or went."""
    return _EPOCH.value


def epoch_address() -> int:
    """The address of the epoch's 8 bytes."""
    return ctypes.addressof(_EPOCH)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class Contexts:
    """The `ctx` arrays of one image, for each provider and thread count met so far."""

    def __init__(self, image: Image):
        self._image = image
        self._arrays: dict[tuple[str, int, int], _Context] = {}
        self._made: list[_Context] = []  # all: calls may use one that another thread has just replaced
        self._hook = 0

    @property
    def hook(self) -> int:
        """The address of `void hook(ctx*, int64 launch, int64 done)`, or 0."""
        return self._hook

    @hook.setter
    def hook(self, address: int) -> None:
        self._hook = address
        _EPOCH.value += 1

    def current(self, threads: int | None = None) -> int:
        """The address of the ctx for a call made now, with at most `threads` threads."""
        source = provider()
        count = source.count()
        if threads is not None:
            count = min(count, threads)
        name = source.name if count > 1 else "serial"
        array = self._arrays.get((name, count, self.hook))
        if array is None or (name == "pool" and array[_USER] != _pool):
            array = self._make(source if count > 1 else _serial(), count)
        return array.address

    def _make(self, source: Provider, count: int) -> _Context:
        user = source.user(self._image, count)
        name = source.name if user or source.name == "serial" else "serial"  # no threads could be started
        array = _Context()
        array[_VERSION] = ABI
        array[_PARALLEL] = self._image.address(f"lamina_parallel_{name}")
        array[_THREADS], array[_USER], array[_HOOK] = count, user, self.hook
        array.address = ctypes.addressof(array)
        self._made.append(array)
        self._arrays[(source.name, count, self.hook)] = array
        return array


class _Context(ctypes.c_int64 * _SLOTS):
    """The array, and its own address, which `ctypes.addressof` is slow to tell."""

    address = 0
