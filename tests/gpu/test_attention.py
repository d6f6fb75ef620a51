"""Attention on tensor cores: tiles in shared memory, the order of work, the merging of parts, and what is assembled."""

import ml_dtypes
import numpy as np
import pytest
from mlir import ir
from support.ptx import assembled, needs_ptxas
from support.simulate_gpu import simulate
from support.tile_kernels import attention, kernel, open_attention, tensor

from lamina.compiler.levels import graph_pipeline
from lamina.dialects import dims
from lamina.dialects.mlir_context import context
from lamina.passes.gpu.attention.parts import emit_parts, new_parts
from lamina.passes.gpu.attention.shared import HeadTile
from lamina.passes.gpu.attention.tiles import DEPTHS, AttentionTiles, choose_attention_tiles, depth_for, query_tile
from lamina.passes.gpu.attention.wgmma import FlashAttention
from lamina.passes.gpu.matmul.tiles import SHARED_BYTES
from lamina.passes.pass_manager import Observer, run
from lamina.targets import get_target


# -- shared memory -----------------------------------------------------------------------------------------------------
def swizzled(byte):
    """The 128-byte swizzle: 16-byte chunk `c` of 128-byte line `r` lies at `c xor (r mod 8)`."""
    return byte ^ ((byte >> 7) % 8 << 4)


def copied(tile, matrix):
    """Shared memory after the bulk copies of a tile, each 64 columns wide."""
    memory = np.full(tile.bytes // 2, -1, np.int64)
    for r in range(tile.rows):
        for c in range(tile.depth):
            byte = c // 64 * tile.rows * 128 + r * 128 + c % 64 * 2
            memory[swizzled(byte) // 2] = matrix[r, c]
    return memory


def read(tile, memory, row, step, i, k):
    """Element (i, k) of what a product reads at a step along K, by the strides of its descriptor (PTX ISA)."""
    bits = tile.descriptor_bits()
    leading, stride = (bits >> 16 & 0x3FFF) << 4, (bits >> 32 & 0x3FFF) << 4
    start = tile.offset(row, step)
    if tile.turned:
        block, i = divmod(i, 64)
        byte = start + block * leading + k // 8 * stride + k % 8 * 128 + i * 2
    else:
        byte = start + i // 8 * stride + i % 8 * 128 + k * 2
    return memory[swizzled(byte) // 2]


@pytest.mark.parametrize("rows, depth", [(64, 64), (128, 128), (64, 256)])
@pytest.mark.parametrize("turned", [False, True])
def test_products_read_what_was_copied(rows, depth, turned):
    tile = HeadTile(rows, depth, turned)
    matrix = np.arange(rows * depth).reshape(rows, depth)
    memory = copied(tile, matrix)
    along_k, others = (rows, depth) if turned else (depth, rows)
    for step in range(along_k // 16):
        for i in range(0, others, 7):
            for k in (0, 9, 15):
                place = (16 * step + k, i) if turned else (i, 16 * step + k)
                assert read(tile, memory, 0, step, i, k) == matrix[place]


def test_heads_are_filled_up():
    assert [depth_for(n) for n in (1, 64, 65, 80, 128, 192, 256, 257)] == [64, 64, 128, 128, 128, 256, 256, None]


# -- the order of work -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("count", [1, 2, 5, 8])
@pytest.mark.parametrize("causal, run", [(False, 1), (True, 1), (True, 2)])
def test_every_tile_of_queries_is_taken_once(count, causal, run):
    taken = [query_tile(i, count, causal, run) for i in range(count)]
    assert sorted(taken) == list(range(count))
    if run == 2:
        assert {a + b for a, b in zip(taken[::2], taken[1::2])} <= {count - 1}


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("queries, batches", [(1, 8), (1, 256), (128, 16), (1000, 64), (4096, 64)])
@pytest.mark.parametrize("causal", [False, True])
def test_tiles_fit(depth, queries, batches, causal):
    tiles = choose_attention_tiles(depth, queries, max(queries, 500), batches, causal, few=queries == 1)
    bytes = HeadTile(tiles.rows, depth).bytes + 2 * tiles.stages * HeadTile(tiles.keys, depth).bytes
    assert tiles.blocks_per_sm * (bytes + 16 * (1 + 2 * tiles.stages) + 1024) <= SHARED_BYTES + 1024
    assert tiles.blocks_per_sm * 128 * (tiles.registers[0] + tiles.consumers * tiles.registers[1]) <= 65536
    assert tiles.keys // 2 + depth // 2 + tiles.keys // 4 <= 220, "registers of scores, sums and weights"
    assert not causal or tiles.keys % 64 == 0


def test_keys_are_split_to_fill_the_multiprocessors():
    assert choose_attention_tiles(128, 4, 4096, 8, False, few=True).splits == 16
    assert choose_attention_tiles(128, 4, 4096, 128, False, few=True).splits == 1
    assert choose_attention_tiles(128, 4, 100, 1, False, few=True).splits == 1
    symbolic = choose_attention_tiles(128, 4, dims.symbol("d0"), 8, False, few=True).splits
    assert [dims.evaluate(symbolic, {"d0": n}) for n in (1, 128, 1000, 10000)] == [1, 1, 8, 16]


def test_heads_that_share_keys_are_rows_of_one_query():
    with context(), ir.Location.unknown():
        module = ir.Module.parse(attention((2, 8, 1, 64), (2, 2, 100, 64), gqa=4))
        made, found = open_attention(module)
        q, k, _ = found.place(made)
        assert (found.product.m, found.product.batches, found.gqa, found.few) == (4, 4, 1, True)
        assert q.matrix.entry("q", (64, 64))["sizes"] == [64, 4, 4] and q.matrix.coordinates(3, 2, 0) == [0, 2, 3]
        assert k.matrix.coordinates(3, 64, 0) == [0, 64, 3]
        made.finish()


def test_parts_of_the_keys_cover_them():
    with context(), ir.Location.unknown():
        module = ir.Module.parse(attention((1, 1, 1, 64), (1, 1, 1000, 64)))
        made, found = open_attention(module)
        tiles = AttentionTiles(64, 1, 128, splits=3)
        stage = FlashAttention(made, found, found.place(made), tiles, new_parts(made, found, tiles))
        ranges = [stage._keys(64, part) for part in range(3)]
        assert [n for low, high in ranges for n in range(low, high)] == list(range(8))
        stage.stage.finish()
        made.finish()


# -- parts -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("exact", [False, True])
def test_parts_are_merged(exact):
    """Three parts of two heads of a row each; with a mask the second head has nothing to attend to."""
    rng = np.random.default_rng(0)
    sums, tops, totals = rng.standard_normal((3, 2, 64)), 5 * rng.standard_normal((3, 2)), 1 + rng.random((3, 2))
    if exact:
        sums[:, 1], tops[:, 1], totals[:, 1] = 0, -np.inf, 0
    with context(), ir.Location.unknown():
        module = ir.Module.parse(attention((1, 2, 1, 64), (1, 2, 500, 64), lse=True))
        made, found = open_attention(module)
        tiles = AttentionTiles(64, 1, 128, splits=3)
        emit_parts(made, found, tiles, new_parts(made, found, tiles), exact)
        made.finish()
        scratch = {i: x.astype(np.float32).reshape(-1) for i, x in enumerate((sums, tops, totals))}
        given = [np.zeros(1, np.float32)] * 3
        kinds = [((2, 64), np.dtype(ml_dtypes.bfloat16)), ((2,), np.dtype(np.float32))]
        (out, lse), status = simulate(module, given, kinds, scratch=scratch)
    base = np.exp if exact else np.exp2
    weights = base(tops - np.where(np.isinf(tops.max(0)), 0, tops.max(0)))
    total = (weights * totals).sum(0)
    expected = (weights[..., None] * sums).sum(0) / np.where(total == 0, 1, total)[:, None]
    top = tops.max(0) if exact else tops.max(0) * np.log(2)
    assert status == 0
    np.testing.assert_allclose(out.astype(np.float32).reshape(2, 64), expected, rtol=1e-2, atol=1e-2)
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(lse, np.where(total == 0, 0, top + np.log(total)), rtol=1e-5)


@pytest.mark.parametrize("batch", [1, 2])
def test_outputs_may_be_stored_by_tokens(batch):
    """Parts of 3 heads with 5 rows each, and an epilogue that swaps heads and rows."""
    heads, rows = 3, 5
    q, stored = (batch, heads, rows, 64), (batch, rows, heads, 64)
    types = ", ".join([tensor("bf16", q)] * 3)
    body = f"""%y, %l = "lamina.attention"(%0, %1, %2) {{causal = false, gqa = 1 : i64, scale = unit}} : ({types})
        -> ({tensor("bf16", q)}, {tensor("f32", q[:-1])})
      %e = tensor.empty() : {tensor("bf16", stored)}
      %t = linalg.generic {{indexing_maps = [affine_map<(b, s, h, d) -> (b, h, s, d)>, affine_map<(b, s, h, d) -> (b, s, h, d)>],
        iterator_types = ["parallel", "parallel", "parallel", "parallel"]}} ins(%y : {tensor("bf16", q)}) outs(%e : {tensor("bf16", stored)}) {{
        ^bb0(%i: bf16, %o: bf16): linalg.yield %i : bf16 }} -> {tensor("bf16", stored)}
      return %t : {tensor("bf16", stored)}"""
    text = kernel("attention", [("bf16", q)] * 3, [("bf16", stored)], body, ())
    rng = np.random.default_rng(0)
    sums = rng.standard_normal((1, batch * heads * rows, 64)).astype(np.float32)
    ones = np.ones(batch * heads * rows, np.float32)
    with context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        made, found = open_attention(module)
        tiles = AttentionTiles(64, 1, 128, splits=1)
        emit_parts(made, found, tiles, new_parts(made, found, tiles), False)
        made.finish()
        scratch = dict(enumerate((sums.reshape(-1), ones, ones)))
        kinds = [(stored, np.dtype(ml_dtypes.bfloat16))]
        (out,), status = simulate(module, [np.zeros(1, np.float32)] * 3, kinds, scratch=scratch)
    assert status == 0
    expected = sums.reshape(q).transpose(0, 2, 1, 3).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(out.reshape(stored), expected)


# -- code --------------------------------------------------------------------------------------------------------------
LONG = ((4, 16, 4096, 128), (4, 16, 4096, 128))
CASES = {
    "128": attention(*LONG, lse=True),
    "causal, 64": attention((4, 16, 4096, 64), (4, 4, 4096, 64), causal=True, gqa=4),
    "causal, 64, two blocks": attention((16, 32, 1000, 64), (16, 32, 1000, 64), causal=True),
    "causal, 256": attention((4, 16, 1000, 256), (4, 16, 1000, 256), causal=True, dtype="f16"),
    "one query": attention((4, 32, 1, 128), (4, 8, 4096, 128), gqa=4),
    "mask": attention((2, 8, 1000, 128), (2, 8, 1000, 128), mask=("f32", (1, 1, 1000, 1000))),
}


@needs_ptxas
@pytest.mark.parametrize("name", CASES)
def test_code(name):
    """No spills, no products that ptxas makes wait for each other."""
    with context(), ir.Location.unknown():
        made = assembled(ir.Module.parse(CASES[name]), "sm_90a", "attention")
    assert "wgmma" not in made.report, made.report
    assert "wgmma.mma_async.sync.aligned.m64n" in made.ptx and "cp.async.bulk.tensor" in made.ptx


# -- which attention is found ------------------------------------------------------------------------------------------
SPELT_OUT = """
func.func @main(%q: tensor<2x16x64xTYPE>, %k: tensor<2x64x16xTYPE>, %v: tensor<2x16x64xTYPE>) -> tensor<2x16x64xTYPE> {
  %s = "lamina.matmul"(%q, %k) : (tensor<2x16x64xTYPE>, tensor<2x64x16xTYPE>) -> tensor<2x16x16xTYPE>
  %p = "lamina.softmax"(%s) {dim = 2 : i64} : (tensor<2x16x16xTYPE>) -> tensor<2x16x16xTYPE>
  %y = "lamina.matmul"(%p, %v) : (tensor<2x16x16xTYPE>, tensor<2x16x64xTYPE>) -> tensor<2x16x64xTYPE>
  return %y : tensor<2x16x64xTYPE>
}"""


@pytest.mark.parametrize(
    "target, dtype, found",
    [("sm_90a", "bf16", True), ("sm_90a", "f32", False), ("sm_80", "bf16", True), ("gfx942", "f16", True), ("x86-64-v3", "f32", True)],
)  # fmt: skip
def test_attention_is_found_where_there_is_a_kernel(target, dtype, found):
    steps = [s for s in graph_pipeline(get_target(target)) if "recognize" in s]
    with context(), ir.Location.unknown():
        module = ir.Module.parse(SPELT_OUT.replace("TYPE", dtype))
        run(module, tuple(steps), Observer())
        assert ("lamina.attention" in str(module)) == found
