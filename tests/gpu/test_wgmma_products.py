"""Products on TMA and wgmma by numpy: the copies' coordinates, the tiles, and what each block writes."""

import itertools

import ml_dtypes
import numpy as np
import pytest
import torch
from mlir import ir
from support.simulate_gpu import simulate
from support.tile_kernels import float8_product, kernel, tensor

from lamina.dialects.families.channels_last_conv import ChannelsLastConv
from lamina.dialects.mlir_context import context
from lamina.passes.gpu.gpu_kernel import GpuKernel
from lamina.passes.gpu.matmul.operands import place_operands
from lamina.passes.gpu.matmul.patch_operands import PatchOperand, place_patches
from lamina.passes.gpu.matmul.read_product import read_product
from lamina.passes.gpu.matmul.stack import Stack, find_stack, place_stack
from lamina.passes.gpu.matmul.tiles import (
    Tiles,
    Wanted,
    choose_tiles,
    halved_rows,
)
from lamina.passes.gpu.matmul.wgmma import WgmmaProduct
from lamina.passes.loops.kernel_functions import kernels
from lamina.passes.loops.tensor_graph import TensorGraph

BYTES = {"bf16": 2, "tf32": 4, "e4m3": 1, "e5m2": 1}
E4M3, E5M2 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2
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
        tiles = choose_tiles(m, n, 2048, 1, Wanted(float8=True))
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
            tiles = choose_tiles(m, sum(rows), 1024, 1, Wanted(unit=found.unit))
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
