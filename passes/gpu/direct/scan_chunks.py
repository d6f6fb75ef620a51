"""How a scan of few rows or columns is cut along its dim, so that all multiprocessors have a part of it.

    totals   block (n, c):  what chunk c of block n's rows or columns has,     c = 0 … count - 2
    scan     block (n, c):  as without chunks, from what the chunks before c have: each block combines their totals itself

The chunks are a number of rounds each, which depends on sizes alone: so does the order in which elements are combined. `x` is
read twice, from the cache where it fits: cutting is for scans that leave most of the machine idle.
"""

from __future__ import annotations

from typing import NamedTuple

from ....dialects import dims
from ....dialects.dims import Dim

THREADS = 132 * 2048  # that an H200 runs at once
MOST = 1024  # chunks, whose totals a block reads
UNKNOWN = 64  # chunks of a number of rows or columns that is not known
LEAST_CHUNKS, LEAST_ROUNDS = 4, 8  # fewer take no longer than one launch more
UNROLL = 4  # rounds whose totals are under way together


class Chunks(NamedTuple):
    """A scan in `count` chunks of `rounds` rounds, a multiple of `unroll`, where `when` is 1; in one where it is 0."""

    when: Dim
    count: int
    rounds: Dim
    unroll: int

    def begin(self, number: Dim, end: Dim) -> Dim:
        """The first round of a chunk, of `end` in all: the last chunks may have none."""
        return dims.dim_min(number * self.rounds, end)


def cut_scan(blocks: Dim, threads: int, rounds: Dim) -> Chunks:
    """The chunks of a scan whose `blocks` blocks of `threads` threads walk through `rounds` rounds each."""
    many = THREADS // threads
    few = dims.dim_max(0, dims.dim_min(1, many // LEAST_CHUNKS + 1 - blocks))
    when = few * dims.dim_min(1, dims.floordiv(rounds, LEAST_ROUNDS))
    if when == 0:
        return Chunks(0, 1, rounds, 1)
    count = min(MOST, many // max(blocks, 1)) if isinstance(blocks, int) else UNKNOWN
    if not isinstance(rounds, int):
        return Chunks(when, count, UNROLL * dims.ceildiv(rounds, UNROLL * count), UNROLL)
    each = -(-rounds // count)
    unroll = min(each, UNROLL)
    each = unroll * -(-each // unroll)
    return Chunks(when, -(-rounds // each), each, unroll)
