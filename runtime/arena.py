"""Memory for intermediate tensors: where each lies in one block, and the block itself, one per thread.

`plan_offsets` gives each buffer, in order of birth, the smallest gap between those that live then, in some microseconds. Where
gaps are left at the peak, it places all again, the largest first (Pisarchyk and Lee 2020, arXiv:2001.03288, "greedy by size"),
and keeps the better plan.
"""

from __future__ import annotations

import bisect
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
    offsets, total = _place(sorted(range(len(sizes)), key=lambda i: lifetimes[i][0]), aligned, lifetimes, top=True)
    if len(sizes) <= _MOST_BY_SIZE and total > _largest_sum(aligned, lifetimes):
        others, least = _place(_by_size(aligned), aligned, lifetimes)
        offsets, total = (others, least) if least < total else (offsets, total)
    return [o for o in offsets if o is not None], total


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
        needs = [aligned[i] for i in guests]
        places, _ = _place(_by_size(needs), needs, [lifetimes[i] for i in guests], room)
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


def _by_size(sizes: Sequence[int]) -> list[int]:
    return sorted(range(len(sizes)), key=lambda i: -sizes[i])


def _place(
    order: Sequence[int],
    sizes: Sequence[int],
    lifetimes: Sequence[tuple[int, int]],
    room: int | None = None,
    top: bool = False,
) -> tuple[list[int | None], int]:
    """Each buffer, in that order, in the smallest gap between those placed before that live when it does.

    With `top`, what is free above the last of them, up to the most used so far, is a gap too. None for what then ends
    beyond `room`.
    """
    offsets: list[int | None] = [None] * len(sizes)
    total = 0
    placed: list[tuple[int, int, int, int]] = []  # (offset, end, first launch, last launch), by offset
    soonest = [*itertools.accumulate((lifetimes[i][0] for i in reversed(order)), min)][::-1]  # of what is yet to come
    for i, begin in zip(order, soonest):
        (first, last), size = lifetimes[i], sizes[i]
        placed = [p for p in placed if p[3] >= begin]
        gaps, end = list[tuple[int, int]](), 0
        for offset, above, begins, ends in placed:
            if begins <= last and first <= ends:
                if offset - end >= size:
                    gaps.append((offset - end, end))
                end = max(end, above)
        if top and total - end >= size:
            gaps.append((total - end, end))
        at = min(gaps)[1] if gaps else end
        if room is not None and at + size > room:
            continue
        offsets[i] = at
        bisect.insort(placed, (at, at + size, first, last))
        total = max(total, at + size)
    return offsets, total


class _Arena(threading.local):
    """This thread's block. All programs share it: only one runs at a time in a thread, and keeps nothing in it."""

    block: np.ndarray | None = None
    size = 0
    address = 0


_arena = _Arena()


def thread_arena(size: int) -> tuple[np.ndarray | None, int]:
    """At least `size` bytes of this thread, aligned to 64: what to keep while they are used, and the address.

    A finalizer may ask for more meanwhile, and at exit all threads' blocks go.
    """
    if size > _arena.size:
        _arena.block, _arena.size = None, 0  # free first: old and new need not exist together
        block, address = allocate(size)
        _arena.block, _arena.address, _arena.size = block, address, size
    return _arena.block, _arena.address


def allocate(size: int) -> tuple[np.ndarray, int]:
    """Uninitialised memory aligned to 64: the array that owns it, and the address."""
    block = np.empty(size + ALIGN, np.uint8)
    start = block.__array_interface__["data"][0]
    return block, -(-start // ALIGN) * ALIGN
