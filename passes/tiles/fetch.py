"""Fetch the next block of a B that is packed ahead of time, while tiles multiply by this one.

The first tile that reads a block of weights would wait for L3 or memory, and the others leave both idle. So each tile asks for
its share of the next block, an element or a few at each step of K. On two threads of a Zen 5, BERT-small is 1.09 times as fast
with it, GPT-2 1.12, ResNet-50 1.05; by vectors of 256 bits BERT-small 1.07.
"""

from __future__ import annotations

from dataclasses import replace

from .code import Code, Index
from .micro import Panel

FEWEST_TILES = 4  # of an item: fewer ask for more than a cache line at a step, and prefetchers do as well


def fetching(
    code: Code, b: Panel, block: Index, end: Index, tile: Index, tiles: int, low: Index, depth: Index
) -> Panel:
    """`b`, whose lines `low .. low + depth` a tile reads, as one that fetches a share of as many lines from `block` on.

    `tile` is its number of `tiles`; B ends at `end`.
    """
    if not isinstance(depth, int) or not isinstance(b.stride, int) or tiles < FEWEST_TILES:
        return b
    pace = -(-b.stride // tiles)
    share = code.add(block, code.mul(tile, pace * depth))
    within = code.min(share, code.sub(end, pace * depth))
    return replace(b, ahead=code.sub(within, code.mul(low, pace)), pace=pace)
