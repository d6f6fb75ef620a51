"""Memory for intermediate tensors: where each lies in one block, and the block itself, one per thread.

`plan_offsets` walks buffers in order of birth, gives each the smallest hole it fits into, and returns memory when the
last reader has run. It costs a few microseconds a buffer, so a new tuple of sizes is cheap.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Sequence

import numpy as np

ALIGN = 64  # a cache line, and the widest vector


def plan_offsets(sizes: Sequence[int], lifetimes: Sequence[tuple[int, int]]) -> tuple[list[int], int]:
    """Return the offset of each buffer and the bytes in all.

    A buffer of `sizes[i]` bytes lives from launch `lifetimes[i][0]` to `lifetimes[i][1]`, both included; buffers that
    live at one time do not overlap. Offsets are multiples of 64.
    """
    offsets = [0] * len(sizes)
    holes: list[tuple[int, int]] = []  # (offset, size), by offset, never adjacent
    dying: list[tuple[int, int, int]] = []  # (last launch, offset, size)
    top = 0
    for i in sorted(range(len(sizes)), key=lambda i: lifetimes[i][0]):
        first, last = lifetimes[i]
        size = -(-sizes[i] // ALIGN) * ALIGN
        if size == 0:
            continue
        while dying and dying[0][0] < first:
            _, offset, freed = heapq.heappop(dying)
            _release(holes, offset, freed)
        fitting = [(hole[1], n) for n, hole in enumerate(holes) if hole[1] >= size]
        if fitting:
            _, n = min(fitting)
            offset, room = holes[n]
            holes[n : n + 1] = [(offset + size, room - size)] if room > size else []
        else:
            offset = top
            if holes and sum(holes[-1]) == top:  # the last hole reaches the top: grow from there
                offset = holes.pop()[0]
            top = offset + size
        offsets[i] = offset
        heapq.heappush(dying, (last, offset, size))
    return offsets, top


def _release(holes: list[tuple[int, int]], offset: int, size: int) -> None:
    """Add a hole, merged with its neighbours."""
    n = 0
    while n < len(holes) and holes[n][0] < offset:
        n += 1
    if n < len(holes) and offset + size == holes[n][0]:
        size += holes.pop(n)[1]
    if n and sum(holes[n - 1]) == offset:
        n -= 1
        offset, size = holes[n][0], size + holes.pop(n)[1]
    holes.insert(n, (offset, size))


class _Arena(threading.local):
    """This thread's block. All programs share it: only one runs at a time in a thread, and keeps nothing in it."""

    block: np.ndarray | None = None
    size = 0
    address = 0


_arena = _Arena()


def thread_arena(size: int) -> int:
    """The address of at least `size` bytes, aligned to 64, valid until this thread asks for more."""
    if size > _arena.size:
        _arena.block = None  # free first: old and new need not exist together
        _arena.block, _arena.address = allocate(size)
        _arena.size = size
    return _arena.address


def allocate(size: int) -> tuple[np.ndarray, int]:
    """Uninitialised memory aligned to 64: the array that owns it, and the address."""
    block = np.empty(size + ALIGN, np.uint8)
    start = block.__array_interface__["data"][0]
    return block, -(-start // ALIGN) * ALIGN
