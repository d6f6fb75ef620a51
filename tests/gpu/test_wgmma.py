"""What warpgroup products are told about memory, against the formulas of the PTX ISA, and which tiles are chosen.

`copied` puts a tile where the copy engine would; `read` finds an element where wgmma would look for it, from the
descriptor that it is given. A wrong stride, step or swizzle shows as a wrong element.
"""

import itertools

import ml_dtypes
import numpy as np
import pytest
import torch
from mlir import ir
from support.simulate_gpu import simulate
from support.tile_kernels import float8_product, kernel, tensor

from lamina.dialects import dims
from lamina.dialects.families.channels_last_conv import ChannelsLastConv
from lamina.dialects.mlir_context import context
from lamina.passes.gpu.gpu_kernel import GpuKernel
from lamina.passes.gpu.hopper.tma import find_matrix
from lamina.passes.gpu.hopper.wgmma import ROW_BYTES, SharedTile, position
from lamina.passes.gpu.matmul.operands import place_operands
from lamina.passes.gpu.matmul.patch_operands import PatchOperand, place_patches
from lamina.passes.gpu.matmul.problem import read_product
from lamina.passes.gpu.matmul.stack import Stack, find_stack, place_stack
from lamina.passes.gpu.matmul.tiles import (
    CONFIGURATIONS,
    HOPPER,
    PROMOTED,
    SHARED_BYTES,
    SHARING,
    SPLITS,
    Tiles,
    choose_tiles,
    count_tiles,
    estimate,
    halved_rows,
)
from lamina.passes.gpu.matmul.wgmma import WgmmaProduct, _loaded
from lamina.passes.loops.kernel_functions import kernels
from lamina.passes.loops.tensor_graph import TensorGraph

BYTES = {"bf16": 2, "tf32": 4, "e4m3": 1, "e5m2": 1}
E4M3, E5M2 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2


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
    tiles = choose_tiles(*shape, turned, promoted)
    stage = (tiles.m + tiles.n) * ROW_BYTES
    assert tiles.stages >= 2 and tiles.blocks_per_sm * (tiles.stages * (stage + 16) + 1024) <= SHARED_BYTES + 1024
    assert not turned or tiles.n % 64 == 0
    assert tiles.splits in SPLITS and bool(tiles.promote) == promoted
    sums = tiles.rows // 64 * tiles.n // 2 * (2 if promoted else 1)
    assert sums <= 128, "registers of a thread"


@pytest.mark.parametrize("k, blocks", [(768, 2), (1024, 4), (4096, 8)])
def test_few_additions_of_tensor_cores_between_those_in_f32(k, blocks):
    """Tensor cores truncate sums: the shorter K is, the less of the error may be theirs."""
    assert choose_tiles(512, 768, k, 1, promoted=True).promote == blocks
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
    assert choose_tiles(6304, 3072, 768, 1, plain=True).alternating
    assert not choose_tiles(6304, 3072, 768, 1).alternating
    assert not choose_tiles(4096, 768, 768, 1, plain=True).alternating, "a tile a block"
    results = {wide: choose_tiles(4096, 3072, 1536, 1, plain=True, wide=wide).alternating for wide in (False, True)}
    assert results == {False: False, True: True}, "of 32 bits"


def test_views_that_the_copy_engine_reads():
    """A slice of packed projections starts at coordinates; what is not of 16 bytes has no descriptor."""

    def bf16(*given):
        return find_matrix(*given, "bf16", 2)

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
    assert find_matrix(0, (), (), 64, 512, 1, 64, "f32", 4, may_turn=False) is None
    one = bf16(0, (), (), 1, 24, 0, 1)
    assert one.row_stride == 24


TILES = {"bf16": Tiles(64, 64, 1, 1.0, stages=2), "f32": Tiles(64, 64, 1, 1.0, stages=2, promote=2)}
HALVED = {"bf16": halved_rows(TILES["bf16"])}


def emulated(text, given, tiles=TILES):
    """The result of a product on TMA and wgmma, by numpy: the copies' coordinates, the tiles, and what is written.

    Copies of operands run in the simulator; then every block of every tile is read at the coordinates that its copy
    gets, from a tensor of the descriptor's sizes and strides, with zeros outside.
    """
    with context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        (op,) = kernels(module)
        made = GpuKernel(TensorGraph(op))
        p = read_product(made.graph)
        operands = place_patches(p) or place_stack(made, p) or place_operands(made, p)
        wgmma = WgmmaProduct(made, p, *operands, tiles[p.dtype], None)
        wgmma.stage.op.erase()
        inputs, result = list(made.graph.inputs), tuple(p.result)
        made.finish()
        buffers = {}
        storage = [(result, given[0].dtype if given[0].itemsize > 1 else np.dtype(np.float32))]
        simulate(ir.Module.parse(str(module)), given, storage, scratch=buffers)
    made_y = np.full((p.batches * p.m, p.n), np.nan)
    for unit in range(wgmma.units):
        batch, first_row, first_column, part = wgmma._place(unit)
        (row, rows), (column, columns) = wgmma._rows(first_row), wgmma._columns(first_column)
        sums = np.zeros((wgmma.tiles.m, wgmma.tiles.n))
        for number in range(*wgmma._range(part)):
            blocks = []
            for operand, shape, first in zip(operands, wgmma.shapes, (row, column)):
                if isinstance(operand, Stack):
                    operand, first = operand.parts[operand.number(first)], operand.own(first)
                source = (
                    buffers[operand.source] if isinstance(operand.source, int) else given[inputs.index(operand.source)]
                )
                bring = patches if isinstance(operand, PatchOperand) else block
                blocks.append(bring(operand, shape, source.reshape(-1), batch, first, number, wgmma.depth))
            sums += blocks[0] @ blocks[1].T
        for r in range(wgmma.tiles.m):
            if within(row + r, rows, p.m):
                for c in range(wgmma.tiles.n):
                    if within(column + c, columns, p.n):
                        assert np.isnan(made_y[batch * p.m + row + r, column + c]), "written twice"
                        made_y[batch * p.m + row + r, column + c] = sums[r, c]
    return made_y.reshape(result)


def within(place, limits, size):
    assert 0 <= place < size or limits.end is not None, "a place outside that would be written"
    return (limits.first is None or place >= limits.first) and (limits.end is None or place < limits.end)


def block(operand, shape, buffer, batch, first, number, blocks):
    """What the copies of one block bring, as (rows, k)."""
    entry = operand.entry("buffer", shape.box)
    size = BYTES[shape.dtype]
    strides = [1, *(s // size for s in entry["strides"])]
    found = np.zeros((shape.rows, shape.depth))
    for row, _ in shape.boxes():
        at = operand.coordinates(batch, first + row, number, shape.depth, blocks)
        assert at[0] * size % 16 == 0
        inner, outer = np.meshgrid(np.arange(shape.box[0]), np.arange(shape.box[1]), indexing="ij")
        place = [at[0] + inner, *(np.full_like(inner, x) for x in at[1:])]
        rows = max(range(1, len(at)), key=lambda d: entry["box"][d])
        place[rows] = place[rows] + outer
        inside = np.logical_and.reduce([(0 <= x) & (x < n) for x, n in zip(place, entry["sizes"])])
        offset = np.where(inside, sum(x * s for x, s in zip(place, strides)), 0)
        values = np.where(inside, buffer[offset].astype(np.float64), 0)
        if shape.turned:
            found[row : row + shape.box[0]] = values
        else:
            found[row : row + shape.box[1]] = values.T
    return found


def patches(operand, shape, buffer, batch, first, number, blocks):
    """The same in im2col mode: positions of windows in the descriptor's box, row by row and image by image, from one on."""
    entry = operand.entry("buffer", shape.box)
    (channel, *start, image), moved = (
        operand.coordinates(batch, first, number, shape.depth, blocks),
        operand.offsets(number, shape.depth),
    )
    channels, *sizes, images = entry["sizes"]
    strides = [s // 2 for s in entry["strides"]]
    walks = [
        range(low, n + high, step)
        for n, low, high, step in zip(sizes, entry["lower"], entry["upper"], entry["steps"], strict=True)
    ]
    places = [(n, *p[::-1]) for n in range(image, images) for p in itertools.product(*walks[::-1])]
    places = places[places.index((image, *start)) :]
    found = np.zeros((shape.rows, shape.depth))
    for row, (n, *place) in enumerate(places[: shape.box[1]]):
        at = [p + m for p, m in zip(place, moved, strict=True)]
        if all(0 <= a < size for a, size in zip(at, sizes)):
            offset = sum(a * s for a, s in zip((*at, n), strides))
            count = min(shape.depth, channels - channel)
            found[row, :count] = buffer[offset + channel : offset + channel + count]
    return found


@pytest.mark.parametrize("dtype", ["bf16", "f32"])
@pytest.mark.parametrize(
    "op, a, b, y",
    [
        ("linear", (100, 72), (136, 72), (100, 136)),
        ("matmul", (70, 33), (33, 77), (70, 77)),
        ("matmul", (3, 20, 40), (3, 40, 72), (3, 20, 72)),
        ("linear", (2, 40, 64), (65, 64), (2, 40, 65)),
    ],
)
def test_tiles_cover_the_product(op, a, b, y, dtype):
    numpy = {"bf16": ml_dtypes.bfloat16, "f32": np.float32}[dtype]
    rng = np.random.default_rng(0)
    given = [rng.standard_normal(s).astype(numpy) for s in (a, b)]
    root = f'%y = "lamina.{op}"(%0, %1) : ({tensor(dtype, a)}, {tensor(dtype, b)}) -> {tensor(dtype, y)}'
    text = kernel("matmul", [(dtype, a), (dtype, b)], [(dtype, y)], f"{root}\nreturn %y : {tensor(dtype, y)}")
    wide = [x.astype(np.float64) for x in given]
    exact = wide[0] @ (np.swapaxes(wide[1], -1, -2) if op == "linear" else wide[1])
    np.testing.assert_allclose(emulated(text, given), exact, atol=1e-5 if dtype == "f32" else 1e-12)


@pytest.mark.parametrize("m, n, k", [(100, 136, 272), (70, 40, 16), (1, 65, 128)])
def test_tiles_of_float8_cover_the_product(m, n, k):
    rng = np.random.default_rng(0)
    a, w = (rng.standard_normal(s).astype(t) for s, t in (((m, k), E4M3), ((n, k), E5M2)))
    exact = a.astype(np.float64) @ w.astype(np.float64).T
    np.testing.assert_allclose(emulated(float8_product(m, n, k, ("f8E4M3FN", "f8E5M2")), [a, w]), exact, atol=1e-12)


def test_sums_of_float8_are_added_after_each_block():
    """And no consumer has more sums than it has registers for."""
    for m, n in ((256, 256), (1024, 1024), (4096, 4096), (8192, 8192), (6304, 768), (128, 33792)):
        tiles = choose_tiles(m, n, 2048, 1, float8=True)
        registers = {1: 232, 2: 232, 3: 160}[tiles.consumers]
        assert tiles.promote == 1 and (tiles.rows // 64 * tiles.n + tiles.columns) // 2 + 16 <= registers


def stacked(rows, k, m=70, dtype="bf16"):
    """A linear layer on matrices one below another, as text."""
    n, whole = sum(rows), tensor(dtype, (sum(rows), k))
    lines = [f"%b0 = tensor.empty() : {whole}"]
    for i, r in enumerate(rows):
        place = f"[{sum(rows[:i])}, 0] [{r}, {k}] [1, 1]"
        lines.append(
            f"%b{i + 1} = tensor.insert_slice %{i + 1} into %b{i}{place} : {tensor(dtype, (r, k))} into {whole}"
        )
    types = f"({tensor(dtype, (m, k))}, {whole}) -> {tensor(dtype, (m, n))}"
    lines += [f'%y = "lamina.linear"(%0, %b{len(rows)}) : {types}', f"return %y : {tensor(dtype, (m, n))}"]
    return kernel("matmul", [(dtype, (m, k)), *((dtype, (r, k)) for r in rows)], [(dtype, (m, n))], "\n".join(lines))


def test_each_tile_reads_the_matrix_that_its_columns_are_of():
    rng = np.random.default_rng(0)
    shapes = [(70, 40), (192, 40), (64, 40), (128, 40)]
    x, *parts = (rng.standard_normal(s).astype(ml_dtypes.bfloat16) for s in shapes)
    exact = x.astype(np.float64) @ np.concatenate(parts).astype(np.float64).T
    np.testing.assert_allclose(emulated(stacked((192, 64, 128), 40), [x, *parts]), exact, atol=1e-12)


@pytest.mark.parametrize("rows, k, dtype", [((128, 256), 36, "bf16"), ((128, 256), 40, "f32")])
def test_what_no_copy_engine_reads_is_no_stack(rows, k, dtype):
    """Rows with a pitch of no 16 bytes, and f32, whose planes are copies."""
    with context(), ir.Location.unknown():
        module = ir.Module.parse(stacked(rows, k, dtype=dtype))
        (op,) = kernels(module)
        made = GpuKernel(TensorGraph(op))
        assert find_stack(made.graph, read_product(made.graph)) is None


def test_no_tile_reaches_into_the_next_matrix():
    for m, rows in itertools.product(
        (1, 70, 2048, 4096), ((768, 768, 768), (2048, 1024, 1024), (128, 256), (640, 128))
    ):
        with context(), ir.Location.unknown():
            module = ir.Module.parse(stacked(rows, 1024, m))
            (op,) = kernels(module)
            made = GpuKernel(TensorGraph(op))
            found = find_stack(made.graph, read_product(made.graph))
            assert found is not None
            tiles = choose_tiles(m, sum(rows), 1024, 1, unit=found.unit)
            assert all(r % tiles.n == 0 for r in rows)


@pytest.mark.parametrize("dtype", ["bf16", "f32"])
def test_a_convolution_shares_its_weights(dtype):
    """Between images: their planes are not those of a batch."""
    numpy = {"bf16": ml_dtypes.bfloat16, "f32": np.float32}[dtype]
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(s).astype(numpy) for s in ((3, 4, 9, 8), (5, 4, 3, 3)))
    exact = torch.nn.functional.conv2d(*(torch.from_numpy(t.astype(np.float64)) for t in (x, w)), padding=1).numpy()
    root = (
        '%y = "lamina.conv"(%0, %1) {stride = array<i64: 1, 1>, padding = array<i64: 1, 1>, dilation = array<i64: 1, 1>, '
        f"groups = 1 : i64, transposed = false, output_padding = array<i64>}} : ({tensor(dtype, x.shape)}, "
        f"{tensor(dtype, w.shape)}) -> {tensor(dtype, exact.shape)}"
    )
    types = [(dtype, x.shape), (dtype, w.shape)]
    text = kernel("conv", types, [(dtype, exact.shape)], f"{root}\nreturn %y : {tensor(dtype, exact.shape)}")
    np.testing.assert_allclose(emulated(text, [x, w]), exact, atol=1e-5 if dtype == "f32" else 1e-12)


WINDOWS = {  # image, weights, stride, padding, dilation
    "padded": ((2, 9, 8, 16), (40, 3, 3, 16), (1, 1), (1, 1), (1, 1)),
    "strided": ((3, 11, 8, 72), (40, 3, 2, 72), (2, 3), (1, 0), (1, 1)),
    "dilated": ((2, 9, 12, 8), (33, 3, 3, 8), (1, 2), (2, 1), (2, 3)),
    "taps side by side": ((2, 7, 9, 16), (40, 4, 4, 16), (1, 1), (0, 0), (1, 1)),
    "few outputs": ((2, 9, 8, 8), (16, 3, 3, 8), (1, 1), (1, 1), (1, 1)),
    "half a row of channels": ((2, 5, 7, 32), (40, 3, 3, 32), (1, 1), (1, 1), (1, 1)),
    "short": ((2, 9, 8, 3), (40, 3, 3, 3), (1, 2), (1, 1), (1, 1)),
    "one element": ((2, 9, 7, 64), (40, 1, 1, 64), (2, 2), (0, 0), (1, 1)),
    "one dimension": ((3, 30, 16), (40, 5, 16), (2,), (2,), (1,)),
    "three dimensions": ((1, 4, 5, 6, 8), (32, 2, 3, 3, 8), (1, 2, 1), (0, 1, 1), (1, 1, 1)),
}


def last_conv(x, w, y, windows):
    """A kernel of `channels_last_conv`."""
    names = zip(("stride", "padding", "dilation"), windows, strict=True)
    attributes = ", ".join(f"{n} = array<i64: {', '.join(map(str, v))}>" for n, v in names)
    types = f"({tensor('bf16', x)}, {tensor('bf16', w)}) -> {tensor('bf16', y)}"
    root = f'%y = "lamina.channels_last_conv"(%0, %1) {{{attributes}}} : {types}'
    return kernel("conv", [("bf16", x), ("bf16", w)], [("bf16", y)], f"{root}\nreturn %y : {tensor('bf16', y)}")


@pytest.mark.parametrize("name, tiles", [(n, TILES) for n in WINDOWS] + [(n, HALVED) for n in WINDOWS])
def test_patches_are_gathered_by_the_copy_engine(name, tiles):
    x_shape, w_shape, *windows = WINDOWS[name]
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(s).astype(ml_dtypes.bfloat16) for s in (x_shape, w_shape))
    exact = ChannelsLastConv.reference(x.astype(np.float64), w.astype(np.float64), None, *windows)
    text = last_conv(x_shape, w_shape, exact.shape, windows)
    np.testing.assert_allclose(emulated(text, [x, w], tiles), exact, atol=1e-12)
