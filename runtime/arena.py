"""Memory for intermediate tensors: where each lies in one block, and the block itself, one per thread.

`plan_offsets` walks buffers in order of birth, gives each the smallest hole it fits into, and returns memory when the
last reader has run. It costs a few microseconds a buffer, so a new tuple of sizes is cheap. Where holes are left at the
peak, it places buffers again, the largest first (Pisarchyk and Lee 2020, arXiv:2001.03288, "greedy by size"), and keeps
the better plan: ResNet-50 then needs 116 MB instead of 141, which is what lives at one time.
"""

from __future__ import annotations

import bisect
import heapq
import itertools
import threading
from collections.abc import Sequence

import numpy as np

ALIGN = 64  # a cache line, and the widest vector
_MOST_BY_SIZE = 500  # buffers; placing them by size takes time quadratic in their number, some 20 ms for so many


def plan_offsets(sizes: Sequence[int], lifetimes: Sequence[tuple[int, int]]) -> tuple[list[int], int]:
    """Return the offset of each buffer and the bytes in all.

    A buffer of `sizes[i]` bytes lives from launch `lifetimes[i][0]` to `lifetimes[i][1]`, both included; buffers that
    live at one time do not overlap. Offsets are multiples of 64.
    """
    aligned = [-(-size // ALIGN) * ALIGN for size in sizes]
    offsets, total = _by_birth(aligned, lifetimes)
    if len(sizes) > _MOST_BY_SIZE or total == _largest_sum(aligned, lifetimes):
        return offsets, total
    others, least = _by_size(aligned, lifetimes)
    return ([o for o in others if o is not None], least) if least < total else (offsets, total)


def find_hosts(
    sizes: Sequence[int], lifetimes: Sequence[tuple[int, int]], hosts: Sequence[tuple[int, int]], least: int
) -> tuple[list[int], list[int], int]:
    """The same where buffers of `least` bytes or more may lie in memory that is needed later only, as results are.

    Host `h` has `hosts[h][0]` bytes, free before launch `hosts[h][1]`. Returned are the host of each buffer, -1 for those in
    the block, the offset of each in its host or the block, and the block's bytes; no buffer has a host if that saves none.
    """
    aligned = [-(-size // ALIGN) * ALIGN for size in sizes]
    homes, offsets = [-1] * len(sizes), [0] * len(sizes)
    left = {i for i, size in enumerate(aligned) if size >= max(least, 1)}
    for host in sorted(range(len(hosts)), key=lambda h: hosts[h][1]):  # what is free longest, for what dies last
        room, until = hosts[host]
        guests = [i for i in sorted(left) if lifetimes[i][1] < until and aligned[i] <= room]
        places, _ = _by_size([aligned[i] for i in guests], [lifetimes[i] for i in guests], room)
        for i, place in zip(guests, places):
            if place is not None:
                homes[i], offsets[i] = host, place
                left.discard(i)
    rest = [i for i, home in enumerate(homes) if home < 0]
    others, total = plan_offsets([sizes[i] for i in rest], [lifetimes[i] for i in rest])
    alone, most = plan_offsets(sizes, lifetimes)
    if total >= most:
        return [-1] * len(sizes), alone, most
    for i, offset in zip(rest, others):
        offsets[i] = offset
    return homes, offsets, total


def _largest_sum(sizes: Sequence[int], lifetimes: Sequence[tuple[int, int]]) -> int:
    """The most bytes that live at one time, less than which no plan needs."""
    changes: dict[int, int] = {}
    for size, (first, last) in zip(sizes, lifetimes):
        changes[first] = changes.get(first, 0) + size
        changes[last + 1] = changes.get(last + 1, 0) - size
    return max(itertools.accumulate(changes[launch] for launch in sorted(changes)), default=0)


def _by_size(
    sizes: Sequence[int], lifetimes: Sequence[tuple[int, int]], room: int | None = None
) -> tuple[list[int | None], int]:
    """Each buffer, the largest first, in the smallest gap between those already placed that live when it does.

    None for what then ends beyond `room`.
    """
    offsets: list[int | None] = [None] * len(sizes)
    total = 0
    placed: list[tuple[int, int, int, int]] = []  # (offset, end, first launch, last launch), by offset
    for i in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        (first, last), size = lifetimes[i], sizes[i]
        gaps, end = list[tuple[int, int]](), 0
        for offset, above, begins, ends in placed:
            if begins <= last and first <= ends:
                if offset - end >= size:
                    gaps.append((offset - end, end))
                end = max(end, above)
        at = min(gaps)[1] if gaps else end
        if room is not None and at + size > room:
            continue
        offsets[i] = at
        bisect.insort(placed, (at, at + size, first, last))
        total = max(total, at + size)
    return offsets, total


def _by_birth(sizes: Sequence[int], lifetimes: Sequence[tuple[int, int]]) -> tuple[list[int], int]:
    """Each buffer, the first to live first, in the smallest hole that is left when it begins to live."""
    offsets = [0] * len(sizes)
    holes: list[tuple[int, int]] = []  # (offset, size), by offset, never adjacent
    dying: list[tuple[int, int, int]] = []  # (last launch, offset, size)
    top = 0
    for i in sorted(range(len(sizes)), key=lambda i: lifetimes[i][0]):
        (first, last), size = lifetimes[i], sizes[i]
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
