"""What warpgroup products are told about memory, against the formulas of the PTX ISA, and which tiles are chosen.

`copied` puts a tile where the copy engine would; `read` finds an element where wgmma would look for it, from the
descriptor that it is given. A wrong stride, step or swizzle shows as a wrong element.
"""

import numpy as np
import pytest

from lamina.dialects import dims
from lamina.passes.gpu.hopper.tma import Matrix, readable
from lamina.passes.gpu.hopper.wgmma import ROW_BYTES, SharedTile, position
from lamina.passes.gpu.matmul.tiles import (
    CONFIGURATIONS,
    HOPPER,
    PROMOTED,
    SHARED_BYTES,
    SHARING,
    SPLITS,
    Wanted,
    choose_tiles,
    count_tiles,
    estimate,
)
from lamina.passes.gpu.matmul.wgmma import _loaded

BYTES = {"bf16": 2, "tf32": 4, "e4m3": 1, "e5m2": 1}


def swizzled(byte, row_bytes=ROW_BYTES):
    """16-byte chunk `c` of 128-byte line `r` lies at `c xor (r mod 8)`, by the 64-byte swizzle at `c xor (r mod 4)`."""
    return byte ^ ((byte >> 7) % (row_bytes // 16) << 4)


def copied(tile, matrix):
    """Shared memory after the tile's bulk copies of `matrix` (rows, k): box by box, innermost dimension first."""
    size = BYTES[tile.dtype]
    memory = np.full(tile.bytes // size, -1, np.int64)
    for row, byte in tile.boxes():
        inner, outer = tile.box
        for o in range(outer):
            for i in range(inner):
                r, k = (row + i, o) if tile.turned else (row + o, i)
                memory[swizzled(byte + o * tile.row_bytes + i * size, tile.row_bytes) // size] = matrix[r, k]
    return memory


def read(tile, memory, row, step, i, k):
    """Element (i, k) of the 64 x 32 bytes that a product reads, by "Strides" of the PTX ISA's matrix descriptor."""
    size = BYTES[tile.dtype]
    bits = tile.descriptor_bits()
    leading, stride = (bits >> 16 & 0x3FFF) << 4, (bits >> 32 & 0x3FFF) << 4
    assert bits >> 62 & 3 == {128: 1, 64: 2}[tile.row_bytes], "the swizzle"
    start = tile.offset(row, step)
    if tile.turned:  # MN-major: 64 elements side by side, 8 of K are an atom
        block, i = divmod(i, ROW_BYTES // size)
        byte = start + block * leading + k // 8 * stride + k % 8 * ROW_BYTES + i * size
    else:
        byte = start + i // 8 * stride + i % 8 * tile.row_bytes + k * size
    return memory[swizzled(byte, tile.row_bytes) // size]


@pytest.mark.parametrize(
    "rows, dtype, turned, row_bytes",
    [
        (64, "bf16", False, 128),
        (256, "bf16", False, 128),
        (128, "bf16", True, 128),
        (128, "tf32", False, 128),
        (128, "bf16", False, 64),
    ],
)
def test_products_read_what_was_copied(rows, dtype, turned, row_bytes):
    tile = SharedTile(rows, dtype, turned, rows, row_bytes)
    matrix = np.arange(rows * tile.depth).reshape(rows, tile.depth)
    memory = copied(tile, matrix)
    assert tile.copied_bytes == tile.bytes and (memory >= 0).all()
    per_step = 32 // BYTES[dtype]
    for row in range(0, rows, 64):
        for step in range(tile.steps):
            for i in range(rows - row):
                for k in (0, 1, per_step - 1):
                    assert read(tile, memory, row, step, i, k) == matrix[row + i, step * per_step + k]


def test_only_rows_that_exist_are_copied():
    tile = SharedTile(64, "bf16", False, 5)
    assert tile.box == (64, 5) and tile.boxes() == [(0, 0)] and tile.copied_bytes == 5 * 128
    turned = SharedTile(256, "bf16", True, 100)
    assert turned.boxes() == [(0, 0), (64, 64 * 128)] and turned.copied_bytes == 2 * 64 * 128


def test_each_sum_is_in_one_thread():
    places = {position(t, i) for t in range(128) for i in range(32)}
    assert places == {(r, c) for r in range(64) for c in range(64)}
    assert position(33, 0) == (16, 2) and position(5, 7) == (9, 11)  # from the table of m64nNk16


@pytest.mark.parametrize("size, tile", [(128, 64), (100, 64), (65, 64), (777, 128), (30, 64), (2049, 128)])
@pytest.mark.parametrize("unit", [1, 8])
def test_every_row_is_written_once_and_loaded(size, tile, unit):
    written = []
    for first in range(0, size, tile):
        start, limits = _loaded(first, tile, size, unit)
        assert start % unit == 0 or unit == 1
        low = 0 if limits.first is None else limits.first
        end = start + tile if limits.end is None else limits.end
        written += [r for r in range(start, start + tile) if low <= r < end]
    assert written == list(range(size))


def test_ragged_rows_of_symbolic_sizes():
    size = dims.symbol("d0")
    start, limits = _loaded(dims.symbol("first"), 64, size, 8)
    for n in (1, 63, 64, 65, 200):
        written = []
        for first in range(0, n, 64):
            values = {"d0": n, "first": first}
            at, low, end = (dims.evaluate(x, values) for x in (start, limits.first, limits.end))
            written += [r for r in range(at, at + 64) if low <= r < end]
        assert written == list(range(n))


@pytest.mark.parametrize("shape", [(4096, 4096, 4096, 1), (1, 4096, 14336, 1), (512, 512, 512, 1), (100, 30, 8, 3)])
@pytest.mark.parametrize("promoted", [False, True])
@pytest.mark.parametrize("turned", [False, True])
def test_tiles_fit(shape, promoted, turned):
    tiles = choose_tiles(*shape, Wanted(turned, promoted))
    stage = (tiles.m + tiles.n) * ROW_BYTES
    assert tiles.stages >= 2 and tiles.blocks_per_sm * (tiles.stages * (stage + 16) + 1024) <= SHARED_BYTES + 1024
    assert not turned or tiles.n % 64 == 0
    assert tiles.splits in SPLITS and bool(tiles.promote) == promoted
    sums = tiles.rows // 64 * tiles.n // 2 * (2 if promoted else 1)
    assert sums <= 128, "registers of a thread"


@pytest.mark.parametrize("k, blocks", [(768, 2), (1024, 4), (4096, 8)])
def test_few_additions_of_tensor_cores_between_those_in_f32(k, blocks):
    """Tensor cores truncate sums: the shorter K is, the less of the error may be theirs."""
    assert choose_tiles(512, 768, k, 1, Wanted(promoted=True)).promote == blocks
    assert choose_tiles(512, 768, k, 1).promote == 0


def test_the_best_estimate_is_chosen():
    tiles = choose_tiles(4096, 4096, 4096, 1)
    assert (tiles.m, tiles.n, tiles.splits) == (128, 256, 1)
    few = choose_tiles(16, 4096, 4096, 1)
    assert few.m == 64 and estimate(few, HOPPER, 16, 4096, 4096, 1) < 15
    vit = choose_tiles(6304, 768, 768, 1)
    assert (vit.m, vit.n) == (192, 192) and count_tiles(vit, 6304, 768) == 132, "one wave of an H200"
    narrow = choose_tiles(100352, 64, 64, 1)
    assert (narrow.m, narrow.n) == (256, 64), "no column of a tile is padding"
    assert all(t.m % 64 == 0 and t.n % 32 == 0 for t in (*CONFIGURATIONS, *SHARING, *PROMOTED))


def test_consumers_alternate_where_only_sums_are_written():
    """And where a block has several tiles: one is written while the next is multiplied."""
    assert choose_tiles(6304, 3072, 768, 1, Wanted(plain=True)).alternating
    assert not choose_tiles(6304, 3072, 768, 1).alternating
    assert not choose_tiles(4096, 768, 768, 1, Wanted(plain=True)).alternating, "a tile a block"
    results = {
        wide: choose_tiles(4096, 3072, 1536, 1, Wanted(plain=True, wide=wide)).alternating for wide in (False, True)
    }
    assert results == {False: False, True: True}, "of 32 bits"


def test_views_that_the_copy_engine_reads():
    """A slice of packed projections starts at coordinates; what is not of 16 bytes has no descriptor."""

    def bf16(*given):
        return readable(Matrix(*given, "bf16", 2))

    sliced = bf16(768, (), (), 512, 768, 2304, 1)
    assert sliced.entry("buffer:0", (64, 64))["sizes"] == [1536, 512] and sliced.coordinates(0, 64, 128) == [896, 64]
    turned = bf16(0, (4,), (512 * 64,), 64, 512, 1, 64)
    assert turned.turned and turned.entry("buffer:0", (64, 64))["strides"] == [128, 65536]
    assert turned.coordinates(3, 8, 16) == [8, 16, 3]
    assert bf16(0, (4,), (0,), 64, 512, 512, 1).coordinates(3, 8, 16) == [16, 8]
    heads = bf16(0, (2, 4), (64 * 1024, 64), 64, 64, 1024, 1)
    batch = dims.symbol("batch")
    at = [dims.evaluate(c, {"batch": 6}) for c in heads.coordinates(batch, 0, 0)]
    assert heads.entry("x", (64, 64))["sizes"] == [64, 64, 4, 2] and at == [0, 0, 2, 1]
    assert bf16(0, (), (), 512, 521, 521, 1) is None
    assert bf16(3, (), (), 512, 512, 1024, 1) is None
    assert bf16(0, (), (), 512, 512, 2048, 2) is None
    assert readable(Matrix(0, (), (), 64, 512, 1, 64, "f32", 4), may_turn=False) is None
    one = bf16(0, (), (), 1, 24, 0, 1)
    assert one.row_stride == 24
