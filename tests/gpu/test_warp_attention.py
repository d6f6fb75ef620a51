"""Attention by `mma.sync`, run on the CPU with its copies and warps simulated, against float64; and what is assembled."""

import ml_dtypes
import numpy as np
import pytest
from mlir import ir
from support.ptx import assembled, needs_ptxas
from support.simulate_gpu import simulate
from support.tile_kernels import attention, open_attention

from lamina.dialects.mlir_context import context
from lamina.passes.gpu.attention.parts import emit_parts, new_parts
from lamina.passes.gpu.attention.tiles import DEPTHS
from lamina.passes.gpu.attention.warp_tiles import WarpTiles, choose_warp_tiles
from lamina.passes.gpu.attention.warps import WarpAttention

HALVES = {"bf16": ml_dtypes.bfloat16, "f16": np.float16}


def exact(q, k, v, mask, causal):
    """Outputs and log-sum-exps in float64; a row that keeps nothing is 0."""
    group = q.shape[1] // k.shape[1]
    k, v = (np.repeat(x.astype(np.float64), group, 1) for x in (k, v))
    scores = q.astype(np.float64) @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5 + (0 if mask is None else mask)
    if causal:
        scores[..., np.triu(np.ones(scores.shape[-2:], bool), 1)] = -np.inf
    top = np.maximum(scores.max(-1, keepdims=True), np.finfo(np.float64).min)
    weights = np.exp(scores - top)
    total = weights.sum(-1, keepdims=True)
    empty = total == 0
    total[empty] = 1
    return weights @ v / total, np.where(empty, 0, top + np.log(total))[..., 0]


def attended(q, k, tiles, causal=False, dtype="bf16", mask=None):
    """Values of the kernel on random operands, simulated, and the exact ones."""
    rng = np.random.default_rng(0)
    operands = [rng.standard_normal(s).astype(HALVES[dtype]) for s in (q, k, k)]
    given = operands if mask is None else [*operands, mask]
    kind = None if mask is None else ("f32", mask.shape)
    with context(), ir.Location.unknown():
        module = ir.Module.parse(attention(q, k, causal, q[1] // k[1], dtype, kind, lse=True))
        made, found = open_attention(module)
        parts = new_parts(made, found, tiles) if tiles.splits != 1 else None
        stage = WarpAttention(made, found, found.place(made), tiles, parts)
        stage.emit()
        if parts is not None:
            emit_parts(made, found, tiles, parts, stage.softmax.exact)
        made.finish()
        kinds = [(q, np.dtype(HALVES[dtype])), (q[:-1], np.dtype(np.float32))]
        (out, lse), status = simulate(module, given, kinds)
    assert status == 0
    return (out.astype(np.float64), lse), exact(*operands, mask, causal)


@pytest.mark.parametrize(
    "q, k, tiles, options",
    [
        ((1, 2, 40, 64), (1, 2, 100, 64), WarpTiles(64, 2, 1, 32), {}),
        ((1, 2, 70, 64), (1, 1, 70, 64), WarpTiles(64, 1, 2, 16), {"causal": True}),  # rows beyond a tile's diagonal
        ((1, 1, 33, 64), (1, 1, 17, 64), WarpTiles(64, 2, 1, 32), {"causal": True}),
        ((1, 1, 20, 72), (1, 1, 40, 72), WarpTiles(128, 1, 2, 32), {"dtype": "f16"}),  # columns beyond the head's
        ((1, 1, 9, 256), (1, 1, 20, 256), WarpTiles(256, 1, 1, 16), {}),
        ((1, 2, 1, 64), (1, 2, 150, 64), WarpTiles(64, 1, 1, 32, splits=3), {}),
    ],
)
def test_values(q, k, tiles, options):
    (out, lse), (expected, sums) = attended(q, k, tiles, **options)
    error = np.linalg.norm(out - expected) / np.linalg.norm(expected)
    assert error < (4e-3 if options.get("dtype") != "f16" else 5e-4)
    np.testing.assert_allclose(lse, sums, rtol=1e-5, atol=1e-5)


def test_a_row_that_keeps_nothing_is_zero():
    mask = np.zeros((1, 1, 10, 20), np.float32)
    mask[..., 3, :] = -np.inf
    mask[..., 5, 9:] = -np.inf
    (out, lse), (expected, sums) = attended((1, 1, 10, 64), (1, 1, 20, 64), WarpTiles(64, 1, 1, 16), mask=mask)
    assert not out[0, 0, 3].any()
    np.testing.assert_allclose(out, expected, atol=1e-2)
    np.testing.assert_allclose(lse, sums, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("queries, batches, few", [(1, 8, True), (33, 8, True), (100, 8, False), (4096, 64, False)])
def test_tiles_fit(depth, queries, batches, few):
    """Of 100 KB that the smallest of these chips give to a block."""
    tiles = choose_warp_tiles(depth, queries, 4096, batches, few)
    assert 2 * depth * (tiles.rows + 2 * tiles.keys) <= 99 * 1024
    assert not few or tiles.rows >= queries


@pytest.mark.parametrize("queries", [1, 20, 40, 60])
def test_few_queries_of_any_number(queries):
    """Three warps copied 60 of 64 keys: 33 to 48 queries read what lay in shared memory."""
    q, k = (1, 2, queries, 64), (1, 2, 50, 64)
    made, right = attended(q, k, choose_warp_tiles(64, queries, 50, 2, True))
    np.testing.assert_allclose(made[0], right[0], atol=1e-2)
    np.testing.assert_allclose(made[1], right[1], atol=1e-5)


CASES = {
    **{f"{d}": attention((4, 16, 4096, d), (4, 16, 4096, d), causal=d == 64, lse=True) for d in DEPTHS},
    "one query": attention((4, 32, 1, 128), (4, 8, 4096, 128), gqa=4),
    "mask": attention((2, 8, 1000, 128), (2, 8, 1000, 128), mask=("f32", (1, 1, 1000, 1000))),
}


@needs_ptxas
@pytest.mark.parametrize("name", CASES)
def test_code(name):
    """No spills, copies that nobody waits for, and matrices read by the instruction for it."""
    with context(), ir.Location.unknown():
        made = assembled(ir.Module.parse(CASES[name]), "sm_80", "attention")
    for instruction in (
        "cp.async.cg.shared.global",
        "ldmatrix.sync.aligned.m8n8.x4.trans",
        "mma.sync.aligned.m16n8k16",
    ):
        assert instruction in made.ptx
